"""Copies of stores on disk: a worker's own, marked until their task is here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eosframework.engine.stores.state_ports import CopyBackend, TaskStores
from eosframework.state.rocksdb_backend import RocksState
from eosframework.state.store_directories import list_stores
from tests.support.applications.stores import COUNTS, TASK, content

MakeRocks = Callable[..., RocksState]


def write(stores: TaskStores, position: int) -> None:
    stores.write({"counts": [(b"position", b"%d" % position)]}, {"counts": position})


def places(tmp_path: Path) -> dict[str, tuple[bool, bool]]:
    """By slot, whether its stores are a copy, and whether they are held."""
    return {p.path.name: (p.is_copy, p.held) for p in list_stores(tmp_path / "flights")}


def test_a_copy_becomes_the_stores_of_its_task_as_it_is(backend: CopyBackend) -> None:
    copy = backend.keep_copy(TASK, 4, [COUNTS])
    write(copy, 7)
    backend.own(copy)
    assert content(copy.store("counts")) == {b"position": b"7"}
    assert copy.position("counts") == 7
    write(copy, 8)
    assert copy.position("counts") == 8
    copy.close()


def test_a_copy_is_marked_until_its_task_is_here(make_rocks: MakeRocks, tmp_path: Path) -> None:
    state = make_rocks("host.0")
    copy = state.keep_copy(TASK, 4, [COUNTS])
    write(copy, 1)
    assert places(tmp_path) == {"host.0": (True, True)}
    state.own(copy)
    assert places(tmp_path) == {"host.0": (False, True)}
    copy.close()
    state.keep_copy(TASK, 4, [COUNTS]).close()
    assert places(tmp_path) == {"host.0": (True, False)}
    state.open(TASK, 4, [COUNTS]).close()
    assert places(tmp_path) == {"host.0": (False, False)}


def test_a_copy_takes_nothing_away_that_another_worker_left_to_come_back_to(
    make_rocks: MakeRocks, tmp_path: Path
) -> None:
    left = make_rocks("host.0").open(TASK, 4, [COUNTS])
    write(left, 7)
    left.close()
    copy = make_rocks("host.1").keep_copy(TASK, 4, [COUNTS])
    assert copy.position("counts") is None
    assert places(tmp_path) == {"host.0": (False, False), "host.1": (True, True)}
    again = make_rocks("host.0").open(TASK, 4, [COUNTS])
    assert again.position("counts") == 7


def test_a_copy_that_was_given_up_goes_on_where_it_was(make_rocks: MakeRocks) -> None:
    state = make_rocks("host.0")
    copy = state.keep_copy(TASK, 4, [COUNTS])
    write(copy, 5)
    copy.close()
    assert make_rocks("host.0").keep_copy(TASK, 4, [COUNTS]).position("counts") == 5


def test_a_copy_of_other_stores_is_discarded_like_any(make_rocks: MakeRocks) -> None:
    state = make_rocks("host.0")
    copy = state.keep_copy(TASK, 4, [COUNTS])
    write(copy, 5)
    copy.close()
    assert make_rocks("host.0").keep_copy(TASK, 5, [COUNTS]).position("counts") is None
