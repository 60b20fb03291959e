"""Whose directory a store is in: restarts find their own, what others left is adopted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eosframework.config import StateSettings
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.errors import ConfigurationError, StateUnwritable
from eosframework.state.rocksdb_backend import RocksState
from eosframework.state.store_directories import FoundStores, list_stores, remove, take, unused
from tests.support.applications.stores import COUNTS, NAMES, TASK, content

MakeRocks = Callable[..., RocksState]


def fill(state: RocksState, position: int = 1, *stores: StoreIdentity) -> None:
    """Write a position and that number as content, and give the task up."""
    opened = state.open(TASK, 4, list(stores) or [COUNTS, NAMES])
    entry = [(b"position", b"%d" % position)]
    opened.write({"counts": entry, "names": entry}, {"counts": position, "names": position})
    opened.close()


def position(state: RocksState, *stores: StoreIdentity, partitions: int = 4) -> int | None:
    """Open a task, check that content and position are one, and return the position."""
    opened = state.open(TASK, partitions, list(stores) or [COUNTS, NAMES])
    reached = opened.position("counts")
    there = {} if reached is None else {b"position": b"%d" % reached}
    assert content(opened.store("counts")) == there
    return reached


def slots(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "flights" / TASK).iterdir())


def test_a_restarted_worker_finds_its_own_stores(make_rocks: MakeRocks) -> None:
    fill(make_rocks("host.0"), 7)

    assert position(make_rocks("host.0")) == 7


def test_what_another_worker_of_the_machine_gave_up_is_adopted(
    make_rocks: MakeRocks, tmp_path: Path
) -> None:
    fill(make_rocks("host.0"), 7)

    assert position(make_rocks("host.1")) == 7
    assert slots(tmp_path) == ["host.1"]


def test_a_task_that_goes_to_and_fro_takes_its_stores_along(make_rocks: MakeRocks) -> None:
    for step in range(1, 7):
        fill(make_rocks(f"host.{step % 2}"), step)

    assert position(make_rocks("host.0")) == 6


def test_empty_stores_give_way_to_filled_ones(make_rocks: MakeRocks) -> None:
    holding = make_rocks("host.0").open(TASK, 4, [COUNTS, NAMES])
    holding.write({"counts": [(b"position", b"2")]}, {"counts": 2})
    empty = make_rocks("host.1").open(TASK, 4, [COUNTS, NAMES])
    holding.close()
    empty.close()

    assert position(make_rocks("host.1")) == 2


def test_of_several_the_one_written_last_is_adopted_and_older_ones_stay(
    make_rocks: MakeRocks, tmp_path: Path
) -> None:
    holding = make_rocks("host.0").open(TASK, 4, [COUNTS, NAMES])
    fill(make_rocks("host.1"), 5)
    holding.close()
    assert slots(tmp_path) == ["host.0", "host.1"]

    assert position(make_rocks("host.2")) == 5
    assert slots(tmp_path) == ["host.0", "host.2"]


def test_ones_own_stores_give_way_to_newer_ones(make_rocks: MakeRocks, tmp_path: Path) -> None:
    holding = make_rocks("host.0").open(TASK, 4, [COUNTS, NAMES])
    holding.write({"counts": [(b"position", b"2")]}, {"counts": 2})
    fill(make_rocks("host.1"), 5)
    holding.close()

    assert position(make_rocks("host.0")) == 5
    assert slots(tmp_path) == ["host.0"]


def test_stores_that_somebody_holds_are_left_alone(make_rocks: MakeRocks, tmp_path: Path) -> None:
    holding = make_rocks("host.0").open(TASK, 4, [COUNTS, NAMES])
    holding.write({"counts": [(b"k", b"1")]}, {"counts": 9})

    assert position(make_rocks("host.1")) is None
    assert content(holding.store("counts")) == {b"k": b"1"}
    assert slots(tmp_path) == ["host.0", "host.1"]


def test_a_second_worker_of_the_same_name_begins_empty_beside_the_first(
    make_rocks: MakeRocks, tmp_path: Path
) -> None:
    holding = make_rocks("host.0").open(TASK, 4, [COUNTS, NAMES])
    holding.write({"counts": [(b"k", b"1")]}, {"counts": 9})
    second = make_rocks("host.0")

    fill(second, 3)

    assert slots(tmp_path) == ["host.0", "host.0+1"]
    holding.write({"counts": [(b"k", b"2")]}, {"counts": 10})
    holding.close()
    assert make_rocks("host.0").open(TASK, 4, [COUNTS, NAMES]).position("counts") == 10
    assert make_rocks("host.1").open(TASK, 4, [COUNTS, NAMES]).position("counts") == 3
    assert slots(tmp_path) == ["host.0", "host.1"]


@pytest.mark.parametrize(
    ("label_of", "application", "partitions", "reason"),
    [
        ("flights", "flights", 8, "partitions is 4 instead of 8"),
        ("other", "flights", 4, "application is 'other' instead of 'flights'"),
    ],
)
def test_stores_of_another_application_or_partition_count_are_discarded(
    make_rocks: MakeRocks,
    tmp_path: Path,
    label_of: str,
    application: str,
    partitions: int,
    reason: str,
) -> None:
    fill(make_rocks("host.0", label_of), 7)
    if label_of != application:
        (tmp_path / label_of).rename(tmp_path / application)

    with capture_logs() as events:
        assert position(make_rocks("host.0", application), partitions=partitions) is None

    [event] = events
    assert event == {
        "event": "state_discarded",
        "log_level": "warning",
        "directory": str(tmp_path / application / TASK / "host.0"),
        "store": "all",
        "reason": reason,
    }


def test_stores_of_another_task_are_discarded(make_rocks: MakeRocks, tmp_path: Path) -> None:
    fill(make_rocks(), 7)
    (tmp_path / "flights" / TASK).rename(tmp_path / "flights" / "late-1")

    with capture_logs() as events:
        opened = make_rocks().open("late-1", 4, [COUNTS])

    assert opened.position("counts") is None
    assert [event["reason"] for event in events] == ["task is 'late-0' instead of 'late-1'"]


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        (StoreIdentity("counts", "id-of-a-new-topic", 1), "changelog is 'id-of-counts' instead of"),
        (StoreIdentity("counts", "id-of-counts", 2), "schema_version is 1 instead of 2"),
    ],
)
def test_a_store_of_another_changelog_or_schema_is_discarded_alone(
    make_rocks: MakeRocks, identity: StoreIdentity, reason: str
) -> None:
    fill(make_rocks(), 7)

    with capture_logs() as events:
        opened = make_rocks().open(TASK, 4, [identity, NAMES])

    [event] = events
    assert (event["event"], event["store"]) == ("state_discarded", "counts")
    assert event["reason"].startswith(reason)
    assert opened.position("counts") is opened.written_at("counts") is None
    assert content(opened.store("counts")) == {}
    assert opened.position("names") == 7
    assert content(opened.store("names")) == {b"position": b"7"}


def test_a_store_that_the_topology_no_longer_has_is_discarded(make_rocks: MakeRocks) -> None:
    fill(make_rocks(), 7)

    with capture_logs() as events:
        make_rocks().open(TASK, 4, [NAMES]).close()

    assert [(e["event"], e["store"]) for e in events] == [("state_discarded", "counts")]
    opened = make_rocks().open(TASK, 4, [COUNTS, NAMES])
    assert opened.position("counts") is None
    assert content(opened.store("counts")) == {}
    assert opened.position("names") == 7


def test_a_store_that_is_new_in_the_topology_begins_empty(make_rocks: MakeRocks) -> None:
    fill(make_rocks(), 7)

    with capture_logs() as events:
        opened = make_rocks().open(TASK, 4, [COUNTS, NAMES, StoreIdentity("more", "id", 1)])

    assert not events
    assert opened.position("more") is None
    assert (opened.position("counts"), opened.position("names")) == (7, 7)


def test_a_store_may_have_any_name(make_rocks: MakeRocks) -> None:
    stores = [StoreIdentity(name, "id", 1) for name in ("default", "task", "store.", "a.b_c")]
    opened = make_rocks().open(TASK, 4, stores)
    for number, store in enumerate(stores):
        opened.write({store.name: [(b"k", b"%d" % number)]}, {store.name: number})
    opened.close()

    opened = make_rocks().open(TASK, 4, stores)

    assert [opened.position(store.name) for store in stores] == [0, 1, 2, 3]
    assert [opened.store(store.name).get(b"k") for store in stores] == [b"0", b"1", b"2", b"3"]


def test_unused_stores_are_those_that_nobody_holds_and_newer_ones_replaced(
    make_rocks: MakeRocks, tmp_path: Path
) -> None:
    application = tmp_path / "flights"
    assert list_stores(application) == unused(application) == []
    first = make_rocks("host.0").open(TASK, 4, [COUNTS])
    make_rocks("host.1").open(TASK, 4, [COUNTS]).close()
    make_rocks("host.0").open("late-1", 4, [COUNTS]).close()
    first.write({"counts": [(b"k", b"1")]}, {"counts": 1})

    held = {(place.task, place.path.name): place.held for place in list_stores(application)}
    assert held == {
        (TASK, "host.0"): True,
        (TASK, "host.1"): False,
        ("late-1", "host.0"): False,
    }
    assert all(place.size_bytes > 0 for place in list_stores(application))
    [old] = unused(application)
    assert (old.task, old.path.name) == (TASK, "host.1")

    assert remove(old)
    assert not remove(next(place for place in list_stores(application) if place.held))
    assert slots(tmp_path) == ["host.0"]
    assert first.store("counts").get(b"k") == b"1"


def test_looking_takes_nothing_away_from_a_worker(make_rocks: MakeRocks, tmp_path: Path) -> None:
    fill(make_rocks(), 7)
    places: list[FoundStores] = list_stores(tmp_path / "flights")

    assert [place.held for place in places] == [False]
    assert position(make_rocks()) == 7


def test_a_directory_that_cannot_be_made_is_named_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StateUnwritable, match=r"file/flights/late-0.*state\.directory"):
        take(tmp_path / "file" / "flights" / TASK, "host.0")


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a+1"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="give it another name"):
        RocksState(StateSettings(directory=tmp_path), "flights", name)
    with pytest.raises(ConfigurationError, match="give it another name"):
        RocksState(StateSettings(directory=tmp_path), name, "host.0")
