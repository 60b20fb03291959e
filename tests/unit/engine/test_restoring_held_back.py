"""A task reads its changelogs once all transactions written before are decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from eosframework.engine.restoration.restoration import HELD_LOOK_SECONDS, Restoration
from eosframework.engine.stores.state_ports import Reached, StoreIdentity
from eosframework.engine.task.task_states import TaskState
from eosframework.errors import ClusterUnreachable, RunError
from eosframework.records import TopicPartition
from eosframework.state import MemoryState
from eosframework.txnid import TransactionalId

HELD_SECONDS = 30.0
HANGS_AT, WRITTEN = 50, 90


class Log:
    """Changelogs of 90 offsets; those in `stable` are held back by an open transaction."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stable: dict[int, int] = {}
        self.away = False
        self.written = WRITTEN
        self.asked: list[str] = []
        self.opened: list[Any] = []

    def bounds(self, partitions: Sequence[TopicPartition]) -> Any:
        self.asked.append("bounds")
        if self.away:
            raise ClusterUnreachable("no broker answered")
        return {p: (0, self.stable.get(p.partition, self.written)) for p in partitions}

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Any:
        self.asked.append("written_ends")
        if self.away:
            raise ClusterUnreachable("no broker answered")
        return dict.fromkeys(partitions, self.written)

    def open(self, ranges: Any) -> Any:
        self.opened.append(ranges)
        return Reading(ranges)


class Change:
    """A record of a changelog."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._offset


class Reading:
    """Has read everything at once."""

    def __init__(self, ranges: Any) -> None:
        self._ranges = ranges

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Any]]:
        return {p: [Change(offset) for offset in range(*both)] for p, both in self._ranges.items()}

    def read_to(self, partition: TopicPartition) -> int:
        return self._ranges[partition][1]

    def close(self) -> None:
        pass


class State:
    def __init__(self, partition: int) -> None:
        self.changelogs = {"counts": TopicPartition("counts.changelog", partition)}
        self.stores: Any = MemoryState().open("counts-0", 1, [StoreIdentity("counts", "id", 1)])


class WaitingTask:
    """It waits for its state, and has some."""

    state = TaskState.ASSIGNED
    reached = Reached(0, {})

    def __init__(self, partition: int, position: int | None) -> None:
        self.stores = State(partition)
        self.identity = TransactionalId("shop", "counts", partition)
        if position is not None:
            self.stores.stores.write({"counts": [(b"k", b"v")]}, {"counts": position})

    @property
    def position(self) -> int | None:
        return self.stores.stores.position("counts")


def restoring_of(log: Log) -> Restoration:
    return Restoration(log, 1000.0, clock=lambda: log.now, held_seconds=HELD_SECONDS)


def task_at(partition: int, position: int | None) -> Any:
    return cast(Any, WaitingTask(partition, position))


@pytest.mark.parametrize("position", [None, 10, HANGS_AT, 80, WRITTEN])
def test_a_task_waits_until_all_is_decided_and_keeps_what_it_has(position: int | None) -> None:
    log, task = Log(), task_at(0, position)
    log.stable[0] = HANGS_AT
    restoring = restoring_of(log)
    with capture_logs() as logs:
        for _ in range(5):
            restoring.turn([task])
            log.now += HELD_LOOK_SECONDS
        assert not restoring.is_done(task)
        assert (task.position, log.opened) == (position, [])
        log.written = 95
        log.stable[0] = WRITTEN  # later records are not waited for
        restoring.turn([task])
    assert restoring.is_done(task)
    assert task.position == WRITTEN
    events = [event["event"] for event in logs]
    [held] = [event for event in logs if event["event"] == "restore_held_back"]
    assert "eosframework txn hanging" in held["advice"]
    assert "state_rebuilt" not in events
    assert log.asked.count("written_ends") == 1


def test_what_does_not_end_is_refused_and_nothing_is_changed() -> None:
    log, task = Log(), task_at(3, 80)
    log.stable[3] = HANGS_AT
    restoring = restoring_of(log)
    restoring.turn([task])
    log.now = HELD_SECONDS - 1
    restoring.turn([task])
    log.now = HELD_SECONDS
    with pytest.raises(RunError) as refusal:
        restoring.turn([task])
    for told in (
        "task counts[3]",
        "counts.changelog[3] at offset 50",
        "up to offset 90",
        "eosframework txn hanging --topic counts.changelog",
        "the command that ends it",
    ):
        assert told in str(refusal.value)
    assert task.position == 80


def test_brokers_that_are_away_meanwhile_do_not_count_as_a_transaction_that_hangs() -> None:
    log, task = Log(), task_at(0, 80)
    restoring = restoring_of(log)
    log.away = True
    restoring.turn([task])
    log.now = 2 * HELD_SECONDS
    log.away, log.stable[0] = False, HANGS_AT
    restoring.turn([task])
    assert not restoring.is_done(task)


def test_a_task_that_is_held_back_keeps_no_other_from_running() -> None:
    log, held, free = Log(), task_at(0, None), task_at(1, None)
    log.stable[0] = HANGS_AT
    restoring = restoring_of(log)
    restoring.turn([held, free])
    assert restoring.is_done(free)
    assert not restoring.is_done(held)


def test_changelogs_of_many_tasks_are_asked_about_as_often_as_those_of_one() -> None:
    log, tasks = Log(), [task_at(number, None) for number in range(64)]
    restoring = restoring_of(log)
    restoring.turn(tasks)
    assert all(map(restoring.is_done, tasks))
    assert log.asked == ["written_ends", "bounds"]
    assert len(log.opened) == 1


def test_a_task_that_left_is_waited_for_no_more() -> None:
    log, task = Log(), task_at(0, None)
    log.stable[0] = HANGS_AT
    restoring = restoring_of(log)
    restoring.turn([task])
    log.now = HELD_SECONDS
    restoring.turn([])
    again = task_at(0, None)
    restoring.turn([again])
    assert log.asked.count("written_ends") == 2
