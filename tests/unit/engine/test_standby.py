"""Copies follow their changelogs, are handed over whole, and block no task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from eosframework.engine.restoration.standby import BUSY_SECONDS, LOOK_SECONDS, Standby, StandbyPlan
from eosframework.engine.restoration.standby_assignment import Member, standby_members
from eosframework.engine.stores.state_ports import Bounds, StoreIdentity, TaskStores
from eosframework.errors import ClusterUnreachable, PositionLost, StateUnwritable
from eosframework.records import TopicPartition
from eosframework.state import MemoryState
from tests.support.applications.stores import content

TASKS, KEPT_SECONDS, BATCH = 4, 1000.0, 3
ME, OTHER, THIRD = Member("b", "b"), Member("a", "a"), Member("c", "c")
MINE = [("counted", 2), ("counted", 3)]
COPIED = [("counted", 0), ("counted", 1)]


@dataclass(frozen=True)
class Change:
    """A record of a changelog."""

    place: int
    entry: tuple[bytes, bytes | None]

    def key(self) -> bytes:
        return self.entry[0]

    def value(self) -> bytes | None:
        return self.entry[1]

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return 1, self.place


@dataclass
class Logs:
    """The changelog topic; what is before `first` is gone."""

    records: dict[int, list[tuple[bytes, bytes | None]]] = field(
        default_factory=lambda: {partition: [] for partition in range(TASKS)}
    )
    first: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(TASKS), 0))
    stable: dict[int, int] = field(default_factory=dict[int, int])
    """The offset at which an open transaction blocks readers."""
    away: bool = False
    readings: int = 0

    def append(self, partition: int, key: bytes, value: bytes | None) -> None:
        self.records[partition].append((key, value))

    def bounds(self, partitions: Sequence[TopicPartition]) -> Bounds:
        if self.away:
            raise ClusterUnreachable("no broker answered")
        ends = self.written_ends(partitions)
        return {
            p: (self.first[p.partition], self.stable.get(p.partition, ends[p])) for p in partitions
        }

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if self.away:
            raise ClusterUnreachable("no broker answered")
        return {p: len(self.records[p.partition]) for p in partitions}

    def open(self, ranges: Bounds) -> Reading:
        self.readings += 1
        return Reading(self, {p: start for p, (start, _) in ranges.items()})


@dataclass
class Reading:
    logs: Logs
    places: dict[TopicPartition, int]
    closed: bool = False

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Any]]:
        assert not self.closed
        found: dict[TopicPartition, list[Change]] = {}
        for partition, place in self.places.items():
            if place < self.logs.first[partition.partition]:
                raise PositionLost("removed")
            entries = self.logs.records[partition.partition][place : place + BATCH]
            found[partition] = [Change(place + i, entry) for i, entry in enumerate(entries)]
            self.places[partition] = place + len(entries)
        return found

    def read_to(self, partition: TopicPartition) -> int:
        return self.places[partition]

    def close(self) -> None:
        self.closed = True


class Group:
    """Answers at once."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members: Sequence[Member] | None = members
        self._asked = False

    def ask(self) -> None:
        self._asked = True

    def answer(self) -> Sequence[Member] | None:
        asked, self._asked = self._asked, False
        return self.members if asked else None

    def close(self) -> None:
        pass


class Backend(MemoryState):
    """Notes what is open, and may refuse."""

    def __init__(self) -> None:
        self.open_now: list[str] = []
        self.is_full = False
        self.owned: list[TaskStores] = []

    def keep_copy(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> Any:
        if self.is_full:
            raise StateUnwritable("the disk is full")
        opened = cast(Any, super().keep_copy(task, partitions, stores))
        self.open_now.append(task)
        close = opened.close

        def closing() -> None:
            self.open_now.remove(task)
            close()

        opened.close = closing
        return opened

    def own(self, stores: TaskStores) -> None:
        self.owned.append(stores)


class Bench:
    def __init__(self, members: Sequence[Member] = (OTHER, ME)) -> None:
        self.now = 1000.0
        self.logs, self.group, self.backend = Logs(), Group(members), Backend()
        plan = StandbyPlan(
            ME.instance,
            1,
            {"counted": TASKS},
            {"counted": [StoreIdentity("count", "id", 1)]},
            {"count": "app-count-changelog"},
            KEPT_SECONDS,
        )
        self.standby = Standby(
            plan, self.backend, self.logs, self.group, lambda: self.now, lambda: self.now
        )

    def turn(self, turns: int = 1, *, busy: bool = False, seconds: float = 0.0) -> None:
        for _ in range(turns):
            self.standby.turn(MINE, busy=busy)
            self.now += seconds

    def settle(self) -> None:
        """Let two looks agree, and everything that there is be read."""
        for _ in range(2):
            self.turn(2)
            self.now += LOOK_SECONDS
        self.turn(10)

    def held(self, task: tuple[str, int]) -> dict[bytes, bytes]:
        stores = self.standby.hand_over(task)
        assert stores is not None
        return content(stores.store("count"))


def test_a_worker_keeps_copies_of_what_it_would_get_and_hands_them_over_whole() -> None:
    bench = Bench()
    for number in range(10):
        bench.logs.append(0, b"%d" % number, b"x")
    bench.logs.append(0, b"3", None)
    with capture_logs() as logs:
        bench.settle()
    assert bench.standby.tasks == COPIED
    whole = [log["task"] for log in logs if log["event"] == "standby_up_to_date"]
    assert sorted(whole) == ["counted[0]", "counted[1]"]
    stores = bench.standby.hand_over(("counted", 0))
    assert stores is not None
    assert stores.position("count") == 11
    assert content(stores.store("count")) == {b"%d" % n: b"x" for n in range(10) if n != 3}
    assert bench.backend.owned == [stores]
    assert bench.standby.hand_over(("counted", 0)) is None
    assert bench.standby.tasks == [("counted", 1)]


def test_a_copy_ahead_of_the_last_stable_offset_is_kept() -> None:
    bench = Bench()
    for number in range(10):
        bench.logs.append(0, b"%d" % number, b"x")
    bench.settle()
    bench.logs.stable[0] = 5
    bench.logs.append(1, b"k", b"x")
    bench.logs.first[1] = 1  # what is to be read next of the other copy is gone: both begin anew
    bench.now += LOOK_SECONDS
    with capture_logs() as logs:
        bench.settle()
    events = [log["event"] for log in logs]
    assert events.count("standby_follows") == 2
    assert "state_rebuilt" not in events
    assert bench.held(("counted", 0)) == {b"%d" % n: b"x" for n in range(10)}


def test_a_copy_whose_last_record_was_taken_back_is_begun_anew() -> None:
    bench = Bench()
    for number in range(10):
        bench.logs.append(0, b"%d" % number, b"x")
    bench.settle()
    stores = cast(Any, bench.standby)._copies[COPIED[0]].stores
    stores.write({"count": [(b"9", b"taken back"), (b"only here", b"x")]}, {"count": 10})
    cast(Any, bench.standby)._stop_reading()
    bench.logs.append(0, b"more", b"x")
    with capture_logs() as logs:
        bench.turn(10)
    [rebuilt] = [log for log in logs if log["event"] == "state_rebuilt"]
    assert "offset 9 of app-count-changelog[0]" in rebuilt["reason"]
    whole = {b"more": b"x"} | {b"%d" % n: b"x" for n in range(10)}
    assert bench.held(("counted", 0)) == whole


def test_what_was_handed_over_is_followed_no_more() -> None:
    bench = Bench()
    bench.settle()
    stores = bench.standby.hand_over(("counted", 0))
    assert stores is not None
    bench.logs.append(0, b"k", b"written by the task itself")
    bench.standby.turn([*MINE, ("counted", 0)], busy=False)
    bench.standby.turn([*MINE, ("counted", 0)], busy=False)
    assert content(stores.store("count")) == {}
    assert bench.logs.readings == 2, "what is read no more must not be fetched either"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "delete", "turn", "look", "take", "give", "away", "back"]),
            st.integers(0, 1),
            st.sampled_from([b"a", b"b", b"c"]),
        ),
        max_size=60,
    )
)
def test_a_copy_is_always_a_prefix_of_its_changelog(steps: list[tuple[str, int, bytes]]) -> None:
    bench, owned = Bench(), set(MINE)
    for what, partition, key in steps:
        task = "counted", partition
        if what == "append":
            bench.logs.append(partition, key, b"%d" % len(bench.logs.records[partition]))
        elif what == "delete":
            bench.logs.append(partition, key, None)
        elif what == "look":
            bench.now += LOOK_SECONDS
        elif what == "take":
            owned.add(task)
            if (stores := bench.standby.hand_over(task)) is not None:
                position = stores.position("count") or 0
                written = dict(bench.logs.records[partition][:position])
                expected = {k: value for k, value in written.items() if value is not None}
                assert content(stores.store("count")) == expected
                stores.close()
        elif what == "give":
            owned.discard(task)
        else:
            bench.logs.away = what == "away" or (what != "back" and bench.logs.away)
        bench.standby.turn(owned, busy=False)
        assert not owned.intersection(bench.standby.tasks)
    bench.standby.close()
    assert bench.backend.open_now == []


def test_one_look_alone_changes_nothing() -> None:
    bench = Bench()
    bench.turn(3)
    assert bench.standby.tasks == []
    bench.settle()
    bench.group.members = (OTHER, ME, THIRD)
    bench.now += LOOK_SECONDS
    bench.turn(3)
    assert bench.standby.tasks == COPIED
    bench.group.members = (OTHER, ME)
    bench.settle()
    assert bench.standby.tasks == COPIED
    assert bench.logs.readings == 1


def test_a_copy_that_is_not_wanted_any_more_is_closed() -> None:
    bench = Bench()
    bench.settle()
    bench.group.members = (OTHER, Member("aa", "aa"), ME)
    bench.settle()
    chosen = standby_members(bench.group.members, TASKS, 1)
    wanted = [("counted", p) for p, kept in enumerate(chosen) if ME in kept]
    assert wanted != COPIED
    assert bench.standby.tasks == [task for task in wanted if task not in MINE]
    bench.group.members = (OTHER,)
    bench.settle()
    assert bench.standby.tasks == bench.backend.open_now == []


def test_a_busy_worker_reads_one_batch_now_and_then() -> None:
    bench = Bench()
    bench.settle()
    for number in range(10 * BATCH):
        bench.logs.append(0, b"%d" % number, b"x")
    bench.now += 10 * BUSY_SECONDS
    bench.turn(20, busy=True)
    bench.turn(4, busy=True, seconds=BUSY_SECONDS)
    assert BATCH < len(bench.held(("counted", 0))) <= 5 * BATCH


@pytest.mark.parametrize("is_old", [True, False])
def test_a_copy_that_may_lack_deletions_is_begun_anew(is_old: bool) -> None:
    bench = Bench()
    bench.logs.append(0, b"deleted meanwhile", b"x")
    bench.settle()
    bench.logs.away = True
    bench.group.members = None
    stores = cast(Any, bench.standby)._copies[COPIED[0]].stores
    age = KEPT_SECONDS * (0.6 if is_old else 0.4)
    stores._positions["count"] = (1, bench.now - age)
    cast(Any, bench.standby)._stop_reading()
    bench.logs.away = False
    bench.logs.append(0, b"k", b"y")
    bench.logs.records[0][0] = (b"-", None)
    bench.turn(5)
    assert (b"deleted meanwhile" in bench.held(COPIED[0])) is not is_old


def test_a_copy_to_which_nothing_comes_counts_as_written() -> None:
    bench = Bench()
    bench.logs.append(0, b"k", b"x")
    bench.settle()
    stores = cast(Any, bench.standby)._copies[COPIED[0]].stores
    written = stores.written_at("count")
    bench.turn(100, seconds=KEPT_SECONDS / 100)
    before = stores.written_at("count")
    assert before > written
    assert stores.position("count") == 1
    bench.logs.away = True
    bench.turn(2, seconds=KEPT_SECONDS / 40)
    assert stores.written_at("count") == before, "nobody said that there is no more"


def test_a_copy_that_never_has_everything_is_begun_anew_in_time() -> None:
    bench = Bench()
    bench.logs.append(0, b"deleted", b"x")
    bench.settle()
    stores = cast(Any, bench.standby)._copies[COPIED[0]].stores
    whole = stores.written_at("count")
    for step in range(60):
        for number in range(5 * BATCH):
            bench.logs.append(0, b"%d" % number, b"%d" % step)
        bench.turn(busy=True, seconds=KEPT_SECONDS / 100)
        if step < 45:
            assert stores.written_at("count") == pytest.approx(whole, abs=KEPT_SECONDS / 20)
        else:
            # Compacted: neither the value nor its deletion is in the log any more.
            bench.logs.records[0][0] = (b"0", b"0")
    bench.turn(1000, busy=True, seconds=BUSY_SECONDS)
    assert b"deleted" not in bench.held(COPIED[0])


def test_a_copy_that_lags_does_not_count_as_written_now() -> None:
    bench = Bench()
    bench.logs.append(0, b"k", b"x")
    bench.settle()
    stores = cast(Any, bench.standby)._copies[COPIED[0]].stores
    had_everything_at = bench.now - KEPT_SECONDS * 0.4
    stores._positions["count"] = (1, had_everything_at)
    cast(Any, bench.standby)._stop_reading()
    for number in range(5 * BATCH):
        bench.logs.append(0, b"%d" % number, b"x")
    bench.turn(busy=True, seconds=BUSY_SECONDS)
    bench.turn(busy=True, seconds=BUSY_SECONDS)
    assert 1 < stores.position("count") < 5 * BATCH
    assert stores.written_at("count") == had_everything_at


def test_what_retention_removed_begins_the_copy_anew() -> None:
    bench = Bench()
    for number in range(5):
        bench.logs.append(0, b"%d" % number, b"x")
    bench.settle()
    for number in range(5, 9):
        bench.logs.append(0, b"%d" % number, b"x")
    bench.logs.first[0] = 7
    bench.turn(5, seconds=1.0)
    assert bench.held(COPIED[0]) == {b"7": b"x", b"8": b"x"}


def test_brokers_and_disks_that_fail_leave_the_worker_without_copies_and_alone() -> None:
    bench = Bench()
    bench.backend.is_full = True
    with capture_logs() as logs:
        bench.settle()
    assert bench.standby.tasks == []
    assert len([log for log in logs if log["event"] == "standby_retried"]) == 1
    bench.backend.is_full = False
    bench.logs.away = True
    bench.turn(10, seconds=10.0)
    bench.logs.away = False
    bench.turn(10, seconds=10.0)
    assert bench.standby.tasks == COPIED
    assert bench.logs.readings == 1
