"""Stores are read beside the worker that holds them, and after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eosframework.errors import ConfigurationError, StateDamaged
from eosframework.state.rocksdb_backend import RocksState
from eosframework.state.store_reader import OPEN_SECONDS, read_only
from tests.support.applications.store_writer import LARGE_CACHE_BYTES, Expected, writers
from tests.support.applications.stores import COUNTS, NAMES, TASK, content
from tests.support.processes.waiting import within

MakeRocks = Callable[..., RocksState]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "flights" / TASK / "host.0"


def test_stores_are_read_while_their_worker_holds_them(
    make_rocks: MakeRocks, directory: Path
) -> None:
    stores = make_rocks().open(TASK, 4, [COUNTS, NAMES])
    stores.write({"counts": [(b"k", b"1")]}, {"counts": 5})

    with read_only(directory) as task:
        assert task.names == ["counts", "names"]
        assert content(task.store("counts")) == {b"k": b"1"}
        assert task.store("counts").get(b"k") == b"1"
        label_of = task.label_of("counts")
        assert label_of is not None
        assert (label_of.position, label_of.changelog) == (5, "id-of-counts")
        assert task.label_of("names") is None
        assert task.label is not None
        assert (task.label.application, task.label.task) == ("flights", TASK)
        assert {size.store: size.keys for size in task.stats()} == {"counts": 1, "names": 0}

        stores.write({"counts": [(b"k", b"2")]}, {"counts": 6})
        assert task.store("counts").get(b"k") == b"1"
    with read_only(directory) as task:
        assert task.store("counts").get(b"k") == b"2"
    stores.write({"counts": [(b"k", b"3")]}, {"counts": 7})
    assert stores.store("counts").get(b"k") == b"3"


def test_stores_are_read_when_their_worker_is_gone(make_rocks: MakeRocks, directory: Path) -> None:
    state = make_rocks()
    state.open(TASK, 4, [COUNTS]).write({"counts": [(b"k", b"1")]}, {"counts": 5})
    state.close()

    with read_only(directory) as task:
        assert content(task.store("counts")) == {b"k": b"1"}
    assert state.open(TASK, 4, [COUNTS]).position("counts") == 5


def test_what_is_read_beside_a_busy_worker_is_whole_at_its_position(
    tmp_path: Path, directory: Path
) -> None:
    with writers(tmp_path, LARGE_CACHE_BYTES) as host:
        host.start()
        expected = Expected()
        for _ in range(4):
            written = host.wait_past(expected.steps + 200)
            with read_only(directory) as task:
                label = task.label_of("counts")
                assert label is not None
                assert label.position >= written
                expected.advance(label.position)
                assert expected.held == {name: content(task.store(name)) for name in task.names}


def test_a_directory_without_stores_is_named(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(ConfigurationError, match=str(directory)), read_only(directory):
        pass
    assert not directory.exists()


def test_a_store_that_is_not_there_is_named_with_those_that_are(
    make_rocks: MakeRocks, directory: Path
) -> None:
    make_rocks().open(TASK, 4, [COUNTS, NAMES])

    with read_only(directory) as task, pytest.raises(ConfigurationError, match="counts, names"):
        task.store("nope")


def test_damaged_stores_are_named_and_not_tried_for_long(
    make_rocks: MakeRocks, directory: Path
) -> None:
    state = make_rocks()
    state.open(TASK, 4, [COUNTS]).write({"counts": [(b"k", b"1")]}, {"counts": 5})
    state.close()
    for file in directory.glob("*.sst"):
        file.write_bytes(bytes(file.stat().st_size))

    def read() -> None:
        with pytest.raises(StateDamaged, match=str(directory)), read_only(directory) as task:
            content(task.store("counts"))

    within(OPEN_SECONDS, read)
