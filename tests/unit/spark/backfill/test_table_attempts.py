"""What one attempt decides that carries rows into tables; the store is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import (
    DatabaseUnavailable,
    InstanceFenced,
    RecordFailed,
    RunError,
    Superseded,
)
from eosframework.postgres.tables.table_ports import Claim, RowMaker, Seen
from eosframework.serialization.serdes import JSON, STRING
from eosframework.spark.executor.attempt_context import Run
from eosframework.spark.executor.table_attempt import Pace, TableAttempt
from eosframework.topology.graph.graph import Policy, SinkTable, TableMode, TableSink
from tests.support.memory.scripted_kafka import P0, At
from tests.unit.postgres.tables.memory import MemoryStore

PACE = Pace(
    commit_interval_seconds=100,
    batch_rows=10,
    kept_records=1000,
    longest_pause_seconds=5,
    stall_seconds=25,
)


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def maker(on_error: Policy = Policy.FAIL) -> RowMaker:
    table = SinkTable("s.to(t)", "t", TableMode.APPEND, (), None, None, on_error)
    return RowMaker(TableSink("s", "in", STRING, JSON, (table,), on_error))


def messages(*offsets: int, bad: int | None = None) -> list[At]:
    return [
        At(b"no json" if offset == bad else orjson.dumps({"n": offset}), offset, place=P0)
        for offset in offsets
    ]


def in_runs(found: list[At], size: int = 4) -> Iterator[Run]:
    for first in range(0, len(found), size):
        yield P0, found[first : first + size]


class Task:
    """Attempts of one partition on one store."""

    def __init__(self, start: int = 0, end: int = 100) -> None:
        self.store = MemoryStore()
        self.clock = Clock()
        self.start, self.end = start, end
        self.look: Any = lambda: Seen(None, None, connected=False)

    def attempt(self, **options: Any) -> TableAttempt:
        return TableAttempt(
            P0,
            self.start,
            self.end,
            options.pop("maker", None) or maker(),
            self.store,
            PACE,
            lambda: self.look(),
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    @property
    def numbers(self) -> list[int]:
        return [row["n"] for row in self.store.rows.get("t", [])]


def test_rows_go_to_the_table_and_the_position_to_the_end_of_the_range() -> None:
    task = Task()
    offsets = [n for n in range(95) if n % 7]
    assert task.attempt().run(in_runs(messages(*offsets)), 0) == len(offsets)
    assert task.numbers == offsets
    assert task.store.positions[P0] == 100
    assert task.store.calls.count("write") > 5


def test_a_second_attempt_passes_over_what_is_there() -> None:
    task = Task()
    task.store.positions[P0] = 50
    task.attempt().run(in_runs(messages(*range(90))), 0)
    assert task.numbers == list(range(50, 90))
    task.attempt().run(in_runs(messages(*range(90))), 0)
    assert task.numbers == list(range(50, 90))


def test_an_empty_range_has_a_position_too() -> None:
    task = Task(start=40, end=40)
    assert task.attempt().run(iter(()), 0) == 0
    assert task.store.positions[P0] == 40


def test_a_range_that_begins_behind_the_tables_is_refused() -> None:
    task = Task(start=40)
    task.store.positions[P0] = 30
    with pytest.raises(RunError, match=r"before offset 30.*begins at 40"):
        task.attempt().run(in_runs(messages(*range(40, 60))), 0)
    assert task.numbers == []


@given(
    faults=st.lists(
        st.one_of(st.none(), st.tuples(st.just(DatabaseUnavailable("away")), st.booleans())),
        max_size=12,
    ),
    claims=st.integers(0, 3),
    size=st.integers(1, 30),
)
def test_a_commit_in_doubt_loses_and_doubles_nothing(
    faults: list[Any], claims: int, size: int
) -> None:
    task = Task()
    task.store.write_faults = list(faults)
    task.store.claim_faults = [DatabaseUnavailable("away") for _ in range(claims)]
    task.attempt().run(in_runs(messages(*range(95)), size), 0)
    assert task.numbers == list(range(95))
    assert task.store.positions[P0] == 100


def test_an_attempt_that_was_overtaken_ends_and_writes_nothing() -> None:
    task = Task()
    task.store.write_faults = [None, (Superseded("gone", partitions=[P0]), False)]
    with pytest.raises(InstanceFenced):
        task.attempt().run(in_runs(messages(*range(95))), 0)
    [first, *_] = [task.numbers]
    assert first == list(range(len(first)))


def test_what_comes_before_a_record_without_a_row_is_written() -> None:
    task = Task()
    with pytest.raises(RecordFailed):
        task.attempt().run(in_runs(messages(*range(95), bad=33)), 0)
    assert task.numbers == list(range(33))
    assert task.store.positions[P0] == 33


def test_what_comes_before_a_refused_row_is_written() -> None:
    task = Task()
    task.store.refuses = lambda row: row["n"] == 33
    with pytest.raises(RecordFailed, match="refused"):
        task.attempt().run(in_runs(messages(*range(95))), 0)
    assert task.numbers == list(range(33))
    assert task.store.positions[P0] == 33


def test_records_that_give_no_row_by_their_policy_are_left_out() -> None:
    task = Task()
    made = maker(Policy.SKIP)
    task.attempt(maker=made).run(in_runs(messages(*range(95), bad=33)), 0)
    assert task.numbers == [n for n in range(95) if n != 33]
    assert made.skipped == 1


def test_a_database_that_stays_away_ends_the_attempt() -> None:
    task = Task()
    task.store.claim_faults = [DatabaseUnavailable("away") for _ in range(1000)]
    with pytest.raises(RunError, match="start the job again"):
        task.attempt().run(in_runs(messages(*range(95))), 0)
    assert task.clock.now >= 300


def test_a_database_that_went_back_is_noticed() -> None:
    task = Task()

    class Back(MemoryStore):
        def claim(self, partitions: Any) -> list[Claim]:
            if self.calls.count("claim") == 1:
                self.positions[P0] = 5
            return super().claim(partitions)

    task.store = Back()
    task.store.write_faults = [None, None, (DatabaseUnavailable("away"), False)]
    with pytest.raises(RunError, match="went back from offset"):
        task.attempt().run(in_runs(messages(*range(95))), 0)


def test_a_later_attempt_waits_while_the_position_moves_and_then_takes_over() -> None:
    task = Task()
    moving = iter([*range(10, 40, 10)])
    seen = [Seen(1, 0, connected=True)]

    def look() -> Seen:
        seen.append(replace(seen[-1], next_offset=next(moving, seen[-1].next_offset)))
        return seen[-1]

    task.look = look
    task.store.positions[P0] = 30
    task.attempt().run(in_runs(messages(*range(95))), 1)
    assert task.numbers == list(range(30, 95))
    assert task.clock.now >= PACE.stall_seconds
    offsets = [one.next_offset or 0 for one in seen]
    assert all(a <= b for a, b in pairwise(offsets))


def test_an_attempt_that_has_gone_is_not_waited_for() -> None:
    task = Task()
    task.store.positions[P0] = 30
    task.look = lambda: Seen(1, 30, connected=False)
    task.attempt().run(in_runs(messages(*range(95))), 1)
    assert task.numbers == list(range(30, 95))
    assert task.clock.now == 0


def test_a_later_attempt_returns_where_everything_is_done() -> None:
    task = Task()
    task.look = lambda: Seen(3, 100, connected=True)
    assert task.attempt().run(in_runs(messages(*range(95))), 2) == 0
    assert task.store.calls == []


def test_a_later_attempt_waits_for_a_database_that_restarts_before_its_first_look() -> None:
    task = Task()
    looks = iter([DatabaseUnavailable("restarts")] * 3)

    def look() -> Seen:
        if error := next(looks, None):
            raise error
        return Seen(1, 30, connected=False)

    task.look = look
    task.store.positions[P0] = 30
    task.attempt().run(in_runs(messages(*range(95))), 1)
    assert task.numbers == list(range(30, 95))
    assert task.clock.now > 0


def test_a_later_attempt_does_not_watch_for_ever_what_does_not_answer() -> None:
    task = Task()
    seen = [Seen(1, 0, connected=True)]

    def look() -> Seen:
        if not seen:
            raise DatabaseUnavailable("away")
        return seen.pop()

    task.look = look
    with pytest.raises(RunError, match="the database stayed unavailable for 300 s"):
        task.attempt().run(in_runs(messages(*range(95))), 1)
    assert task.store.calls == []
