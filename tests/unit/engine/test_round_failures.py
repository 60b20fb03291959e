"""A failure of one producer in a commit round: the others' commits count once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from eosframework.engine.task import run_slices as slices
from eosframework.engine.task.task import Task
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import (
    ClusterUnreachable,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
    worst,
)
from eosframework.records import TopicPartition
from eosframework.testing.memory_kafka import MemoryStartPositions
from eosframework.transactions.ports import Commit, Fetched
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import (
    OPTIONS,
    P0,
    Broker,
    MemoryLog,
    MemoryOutputs,
)
from tests.unit.engine.messages import compiled, part_of, sink

PARTITIONS = 3
RECORDS = 4


@pytest.fixture(autouse=True)
def all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With this clock, on which every look takes long, each record would be a transaction."""
    monkeypatch.setattr(slices, "FIRST_RECORDS", 100)


class Clock:
    """Every look takes a while, so that rounds come without waiting."""

    def __init__(self, step_seconds: float = 0.05) -> None:
        self.now = 0.0
        self.step_seconds = step_seconds

    def __call__(self) -> float:
        self.now += self.step_seconds
        return self.now


class Emitting(Task):
    """Gives a result at each commit, as nodes with `emit: commit` do."""

    def commit(self) -> Commit:
        fail_at(self, "commit")
        text = b'"result %d of %d"' % (self.committed_offset(self.partitions[0]), self.number)
        self.output.produce("out", text, None, -1, None, None, 0, None)
        return super().commit()

    def committed(self) -> None:
        super().committed()
        fail_at(self, "committed")

    @property
    def number(self) -> int:
        return self.identity.partition


fails: dict[tuple[int, str], Exception] = {}
"""By partition and call: what it raises once."""


def fail_at(task: Emitting, call: str) -> None:
    if error := fails.pop((task.number, call), None):
        raise error


class Run:
    """A worker of three partitions, on a broker in memory."""

    def __init__(self, records: int = RECORDS) -> None:
        fails.clear()
        self.broker = Broker()
        for partition in range(PARTITIONS):
            self.broker.fill(partition, *(f"{partition}/{n}" for n in range(records)))
        plan = Plan(
            "app",
            {"sub": part_of(compiled(sink()))},
            lambda sub, partition: TransactionalId.make("app", sub, partition),
            make_task=Emitting,
        )
        self.outputs = MemoryOutputs(self.broker)
        self.log = MemoryLog(self.broker)
        self.worker = Worker(
            plan, self.log, self.outputs, MemoryStartPositions(), replace(OPTIONS), clock=Clock()
        )

    def findings(self) -> list[str]:
        """Return the violations: each committed record is out once, with one result per commit.

        Nothing else may be.
        """
        seen = Counter(self.broker.values)
        found = [f"{value} is there {count} times" for value, count in seen.items() if count > 1]
        for partition in range(PARTITIONS):
            position = self.broker.positions.get(TopicPartition("in", partition))
            offset = (position.offset if position else None) or 0
            records = {f"{partition}/{n}" for n in range(offset)}
            out = {value for value in seen if value.startswith(f"{partition}/")}
            results = [value for value in seen if value.endswith(f" of {partition}")]
            if out != records or bool(results) != bool(offset):
                found.append(f"partition {partition} is committed up to {offset}, out is {out}")
        return found


def test_who_has_said_its_part_is_not_asked_again_when_another_cannot() -> None:
    """A store of the second is damaged: the first one's results are in its transaction by then."""
    run = Run()
    fails[1, "commit"] = RunError("the store is damaged")
    with pytest.raises(RunError, match="the store is damaged"):
        run.worker.run(until_caught_up=True)
    assert run.findings() == []
    assert run.broker.positions[P0].offset == RECORDS
    assert TopicPartition("in", 1) not in run.broker.positions
    assert run.broker.positions[TopicPartition("in", 2)].offset == RECORDS


def test_a_failure_that_ends_the_worker_while_a_round_begins_ends_no_other_transaction() -> None:
    run = Run()
    fails[1, "commit"] = TransactionFatal("nobody fixed it")
    with pytest.raises(RunError, match="nobody fixed it"):
        run.worker.run(until_caught_up=True)
    assert run.findings() == []
    assert run.broker.positions[P0].offset == RECORDS


def test_all_hear_that_they_are_committed_although_a_store_of_one_does_not_take_it() -> None:
    run = Run()
    fails[0, "committed"] = RunError("the disk is full")
    with pytest.raises(RunError, match="the disk is full"):
        run.worker.run(until_caught_up=True)
    assert run.findings() == []
    assert len(run.broker.positions) == PARTITIONS


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("error", [TransactionAborted, OutcomeUnknown, Retriable])
def test_all_hear_that_they_failed_although_the_first_failure_ends_the_worker(
    error: Callable[[str], TransactionError], done: bool
) -> None:
    run = Run()
    second = (error("?"), done and error is not TransactionAborted)
    run.broker.commit_faults = [(TransactionFatal("nobody fixed it"), False), second]
    with pytest.raises(RunError, match="nobody fixed it"):
        run.worker.run(until_caught_up=True)
    assert run.findings() == []


class LateLog(MemoryLog):
    """A log with rebalances after the records of a fetch, as within a long one."""

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0) -> Fetched:
        happens, self.next = self.next, []
        fetched = super().fetch(limit, timeout_seconds, gather_seconds)
        for one in happens:
            one()
        return fetched


@pytest.mark.parametrize("call", ["commit", "committed"])
def test_of_several_failures_of_a_round_all_are_logged_and_the_worst_is_raised(call: str) -> None:
    run = Run()
    fails[0, "committed"] = ClusterUnreachable("no broker answered")
    fails[2, call] = RunError("the disk is full")
    with capture_logs() as events, pytest.raises(RunError, match="the disk is full"):
        run.worker.run(until_caught_up=True)
    logged = [e["error"] for e in events if e["event"] in ("session_failed", "round_failed")]
    assert (
        logged[:2]
        == ["no broker answered", "the disk is full"][:: 1 if call == "committed" else -1]
    )
    assert run.findings() == []


def test_what_passes_hides_nothing_that_needs_a_fix() -> None:
    passing = [ClusterUnreachable("a"), Retriable("b"), OutcomeUnknown("c")]
    grave = [TransactionAborted("d"), TaskFenced("e"), InstanceFenced("f"), RunError("g")]
    found = [*passing, *grave, ZeroDivisionError("h")]
    for count in range(len(passing) + 1, len(found) + 1):
        assert worst(found[:count]) is worst(found[count - 1 :: -1]) is found[count - 1]
    assert worst(passing) is passing[0]


def test_an_end_that_was_fetched_before_a_rebalance_is_not_the_new_owners() -> None:
    """It was the end for who had read up to there; the new task begins further ahead."""
    run = Run()
    log = run.log = LateLog(run.broker)
    plan = Plan(
        "app",
        {"sub": part_of(compiled(sink()))},
        lambda sub, partition: TransactionalId.make("app", sub, partition),
    )
    options = replace(OPTIONS, commit_interval_seconds=1000.0, transaction_timeout_seconds=3000.0)
    worker = Worker(plan, log, run.outputs, MemoryStartPositions(), options, clock=Clock(0.001))
    original, moved = log.fetch, list[bool]()

    def fetch(*how: Any) -> Fetched:
        task = next(iter(worker.tasks.values()), None)
        if task is not None and task.in_transaction and not moved:
            moved.append(True)
            log.next.append(lambda: log.lose(*run.broker.inputs))
            log.next.append(lambda: log.assign(*run.broker.inputs))
        return original(*how)

    log.fetch = fetch  # pyright: ignore[reportAttributeAccessIssue]
    worker.run(until_caught_up=True)
    assert moved == [True]
    assert len(run.broker.values) == PARTITIONS * RECORDS
    assert all(position.offset == RECORDS for position in run.broker.positions.values())
