"""`eosframework state` reads files of this machine without a broker, and says what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from eosframework.cli import main
from eosframework.cli.state import _line
from eosframework.config import StateSettings
from eosframework.engine.operators.entries import LAYOUT, EntryFormat
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.kafka.client.partitioner import partition_of
from eosframework.records import WindowResult
from eosframework.serialization.serdes import INTEGER
from eosframework.state.layout import Row
from eosframework.state.query import queried_store
from eosframework.state.rocksdb_backend import RocksState
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

YAML = """
application: words
sources: {lines: {topic: lines, key: string, value: json}}
streams:
  counts: {from: lines, steps: [{count: {store: counts}}], to: counts}
"""
PARTITIONS = 4

Run = Callable[..., tuple[int, Any, str]]


def key_in(partition: int) -> str:
    keys = (f"key{n}" for n in range(1000))
    return next(key for key in keys if partition_of(key.encode(), PARTITIONS) == partition)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    Path("app.yaml").write_text(YAML)

    def run(command: str, *arguments: str) -> tuple[int, Any, str]:
        own = ["--set", f"state.directory={tmp_path / 'stores'}"]
        with pytest.raises(SystemExit) as stopped:
            main(["state", command, "app.yaml", *arguments, *own])
        output = capsys.readouterr()
        out = orjson.loads(output.out) if "--json" in arguments else output.out
        return int(stopped.value.code or 0), out, output.err

    return run


@pytest.fixture
def written(run: Run, tmp_path: Path) -> Run:
    """Partitions 0 and 1 are on this machine, with a key each."""
    backend = RocksState(StateSettings(directory=tmp_path / "stores"), "words", "host.0")
    form = EntryFormat("counts", INTEGER)
    for partition in (0, 1):
        name = f"counts-{partition}"
        stores = backend.open(name, PARTITIONS, [StoreIdentity("counts", "id", LAYOUT)])
        entry = key_in(partition).encode(), form.encode((40 + partition, 1_700_000_000_000))
        stores.write({"counts": [entry]}, {"counts": 7})
    backend.close()
    return run


def test_a_key_is_read_from_the_files_that_are_here(written: Run) -> None:
    for partition in (0, 1):
        code, found, _ = written("get", "counts", key_in(partition), "--json")
        assert code == 0
        assert found == {
            "store": "counts",
            "key": key_in(partition),
            "partition": partition,
            "position": 7,
            "found": [{"value": 40 + partition, "timestamp": 1_700_000_000_000}],
            "more": False,
        }
    code, text, _ = written("get", "counts", key_in(0))
    assert text == f"{key_in(0)}  40  2023-11-14T22:13:20.000+00:00  partition 0\n"


def test_a_key_that_another_machine_has_is_told_with_its_partition(written: Run) -> None:
    code, _, err = written("get", "counts", key_in(3))
    assert code == 2
    assert f"has no key '{key_in(3)}' in partitions 0, 1 of 4" in err
    assert "partition 3: give --from-changelog, or the HTTP address of any worker with --ask" in err
    assert written("get", "counts", key_in(3), "--json")[1].keys() == {"error"}


def test_a_scan_shows_what_is_here_and_says_how_much_is_elsewhere(written: Run) -> None:
    code, text, err = written("scan", "counts")
    assert (code, len(text.splitlines())) == (0, 2)
    assert err == "2 shown; 2 partitions are not on this machine\n"
    _, found, _ = written("scan", "counts", "--limit", "1", "--json")
    assert (len(found["found"]), found["more"], found["partitions"]) == (1, True, [0, 1])
    _, found, _ = written("scan", "counts", "--from", "z", "--json")
    assert (found["found"], found["more"]) == ([], False)


def test_stats_tell_how_large_and_how_far_each_partition_is(written: Run) -> None:
    _, found, _ = written("stats", "--json")
    assert [(s["store"], s["partition"], s["keys"], s["position"]) for s in found["stores"]] == [
        ("counts", 0, 1, 7),
        ("counts", 1, 1, 7),
    ]
    assert not any(store["held"] for store in found["stores"])
    assert "counts[1]: about 1 keys" in written("stats", "counts")[1]


def test_copies_are_told_as_such_and_come_behind_what_a_task_has_in_use(
    written: Run, tmp_path: Path
) -> None:
    identities = [StoreIdentity("counts", "id", LAYOUT)]
    other = RocksState(StateSettings(directory=tmp_path / "stores"), "words", "other.0")
    for partition in (1, 2):
        copy = other.keep_copy(f"counts-{partition}", PARTITIONS, identities)
        entry = (
            key_in(partition).encode(),
            EntryFormat("counts", INTEGER).encode((50 + partition, 1_700_000_000_000)),
        )
        copy.write({"counts": [entry]}, {"counts": 9})
    owner = RocksState(StateSettings(directory=tmp_path / "stores"), "words", "host.0")
    owner.open("counts-1", PARTITIONS, identities)

    code, found, err = written("scan", "counts", "--json")
    assert (code, [row["value"] for row in found["found"]]) == (0, [40, 41, 52])
    assert err.startswith("partition 2 is a standby copy on this machine and may lack")
    assert written("get", "counts", key_in(1))[2] == ""
    assert "standby copy on this machine" in written("get", "counts", key_in(2))[2]
    stats = written("stats", "--json")[1]["stores"]
    assert [store["is_copy"] for store in stats] == [False, False, True]
    assert "a standby copy of a task that runs elsewhere" in written("stats", "counts")[1]
    other.close()
    owner.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("get", "count", "a"), "has no store 'count'; its stores are counts; did you mean"),
        (("get", "counts", "a"), "this machine has no partition of store 'counts' in "),
        (("stats",), "this machine has no partition of store 'counts' in "),
        (("scan", "counts", "--set", "state.backend=memory"), "--from-changelog"),
        (("scan", "counts", "--limit", "0"), "--limit"),
    ],
)
def test_what_cannot_be_read_is_one_message(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_window_is_shown_with_its_times(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(YAML)
    store = queried_store(resolve(load_app(str(tmp_path / "app.yaml"))), "counts")
    row = Row("anna", WindowResult(1_700_000_000_000, 1_700_003_600_000, 3), 1_700_000_000_000)
    assert _line(store, row, 1) == (
        "anna  2023-11-14T22:13:20.000+00:00 to 2023-11-14T23:13:20.000+00:00  3  "
        "2023-11-14T22:13:20.000+00:00  partition 1"
    )
    assert repr(row.value) == (
        "WindowResult(2023-11-14T22:13:20.000+00:00 to 2023-11-14T23:13:20.000+00:00: 3)"
    )
    (tmp_path / "app.yaml").write_text(
        YAML.replace("{store", "{window: {records: 5, step: 2}, store")
    )
    store = queried_store(resolve(load_app(str(tmp_path / "app.yaml"))), "counts")
    row = Row("anna", WindowResult(3, 7, 3), 1_700_000_000_000)
    assert _line(store, row, 1).startswith("anna  records 3 to 6  3  2023-11-14T22:13:20.000")
    assert repr(row.value) == "WindowResult(3 to 7: 3)"
    assert (
        repr(WindowResult(-1, 2**62, None)) == "WindowResult(-1 ms to 4611686018427387904 ms: None)"
    )
