"""While one half of the tasks commits, the other half works, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eosframework.errors import (
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    TaskFenced,
    TransactionAborted,
    TransactionError,
)
from eosframework.processing.ports import Commit, Committed, TransactionalOutput
from eosframework.processing.transaction.commit_rounds import LONGEST_OVERLAP_SECONDS
from eosframework.processing.worker import Worker
from eosframework.processing.worker_plan import Plan
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import (
    OPTIONS,
    P0,
    Broker,
    MemoryLog,
    MemoryOutput,
    MemoryOutputs,
    MemoryStartPositions,
)
from tests.unit.processing.messages import compiled, part_of, sink

FROM_EACH = 10_000
FAULTS: list[Callable[[str], TransactionError]] = [
    TransactionAborted,
    OutcomeUnknown,
    Retriable,
    TaskFenced,
]


class Clock:
    """Every look takes a while."""

    def __init__(self, step_seconds: float) -> None:
        self.now = 0.0
        self.step_seconds = step_seconds

    def __call__(self) -> float:
        self.now += self.step_seconds
        return self.now


class Busy(MemoryOutput):
    """An output that must not be used while it is in a round."""

    in_round = False

    @property
    def produce(self) -> Callable[..., None]:
        assert not self.in_round
        return super().produce

    def begin(self) -> None:
        assert not self.in_round
        super().begin()


class SlowRound:
    """A round that is done at the look that the test says."""

    took_seconds = 0.01

    def __init__(self, outputs: SlowOutputs, commits: Sequence[Commit], looks: int) -> None:
        self._outputs = outputs
        self._commits = [*commits]
        self._looks = looks
        self.began_with = sum(len(output.open or ()) for output in outputs.made)
        _mark(commits, in_round=True)

    def is_done(self) -> bool:
        self._looks -= 1
        return self._looks < 0

    def join(self, commits: Sequence[Commit]) -> None:
        _mark(commits, in_round=True)
        self._commits += commits

    def results(self) -> list[Committed]:
        had = sum(len(output.open or ()) for output in self._outputs.made)
        self._outputs.ran_meanwhile.append(had - self.began_with)
        _mark(self._commits, in_round=False)
        return self._outputs.commit(self._commits)


def _mark(commits: Sequence[Commit], *, in_round: bool) -> None:
    for commit in commits:
        assert isinstance(commit.output, Busy)
        assert commit.output.in_round != in_round
        commit.output.in_round = in_round


class SlowOutputs(MemoryOutputs):
    """Outputs whose rounds last.

    Args:
        looks: for the next rounds in turn how often they are asked until they are done.
    """

    def __init__(self, broker: Broker, looks: Sequence[int]) -> None:
        super().__init__(broker)
        self.made: list[Busy] = []
        self.looks = list(looks)
        self.ran_meanwhile: list[int] = []

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        opened = [Busy(self.broker, identity) for identity in transactional_ids]
        self.made += opened
        return [*opened]

    def begin_commit(self, commits: Sequence[Commit], within_seconds: float | None = None) -> Any:
        return SlowRound(self, commits, self.looks.pop(0) if self.looks else 0)

    def close(self, outputs: Sequence[Any]) -> None:
        assert not any(output.in_round for output in outputs)
        super().close(outputs)

    def recycle(self, outputs: Sequence[Any]) -> list[TransactionError | None]:
        assert not any(output.in_round for output in self.made)
        return super().recycle(outputs)


def worker_on(
    broker: Broker, outputs: SlowOutputs, *, turns: int = 2, step_seconds: float = 0.004
) -> tuple[Worker, MemoryLog]:
    log = MemoryLog(broker)
    plan = Plan(
        "app",
        {"sub": part_of(compiled(sink()))},
        lambda sub, partition: TransactionalId.make("app", sub, partition),
    )
    options = replace(OPTIONS, commit_turns=turns)
    return Worker(
        plan, log, outputs, MemoryStartPositions(), options, clock=Clock(step_seconds)
    ), log


def broker_with(partitions: int, records: int) -> Broker:
    broker = Broker()
    for partition in range(partitions):
        broker.fill(partition, *(partition * FROM_EACH + number for number in range(records)))
    return broker


def everything(broker: Broker) -> list[int]:
    return [
        p.partition * FROM_EACH + n for p, log in broker.inputs.items() for n in range(len(log))
    ]


def test_one_half_works_while_the_other_commits() -> None:
    broker = broker_with(2, 300)
    outputs = SlowOutputs(broker, [3] * 1000)
    worker_on(broker, outputs)[0].run(until_caught_up=True)
    assert sorted(broker.values) == everything(broker)
    assert sum(ran > 0 for ran in outputs.ran_meanwhile) > 2


def test_a_task_alone_waits_for_its_commit() -> None:
    broker = broker_with(1, 300)
    outputs = SlowOutputs(broker, [10**6] * 1000)
    worker_on(broker, outputs)[0].run(until_caught_up=True)
    assert broker.values == everything(broker)
    assert set(outputs.ran_meanwhile) == {0}


def test_a_round_that_lasts_is_waited_for() -> None:
    broker = broker_with(2, 3000)
    outputs = SlowOutputs(broker, [10**6] * 1000)
    worker, _ = worker_on(broker, outputs, step_seconds=0.01)
    worker.run(until_caught_up=True)
    assert sorted(broker.values) == everything(broker)
    assert max(outputs.ran_meanwhile) <= 10 * LONGEST_OVERLAP_SECONDS / 0.01


@pytest.mark.parametrize("go", ["revoke", "lose"])
def test_partitions_go_only_when_the_round_is_finished(go: str) -> None:
    """The outputs assert that none is closed within a round."""
    broker = broker_with(2, 300)
    outputs = SlowOutputs(broker, [10**6] * 1000)
    worker, log = worker_on(broker, outputs)
    original, gone = log.fetch, [False]

    def fetch(*how: Any) -> Any:
        if any(output.in_round for output in outputs.made) and not gone[0]:
            gone[0] = True
            getattr(log, go)(P0)
            log.next.append(lambda: log.assign(P0))
        return original(*how)

    log.fetch = fetch  # pyright: ignore[reportAttributeAccessIssue]
    worker.run(until_caught_up=True)
    assert gone == [True]
    assert sorted(broker.values) == everything(broker)


@given(
    partitions=st.integers(1, 5),
    records=st.integers(0, 60),
    looks=st.lists(st.integers(0, 12), max_size=40),
    faults=st.lists(st.tuples(st.sampled_from(FAULTS), st.booleans()) | st.none(), max_size=12),
)
@example(
    partitions=3,
    records=15,
    looks=[0, 0, 12, 12, 10, 10, 12, 10, 0, 0],
    faults=[
        None if fault is None else (fault, False)
        for fault in (
            *(TransactionAborted, None, TransactionAborted, None, TransactionAborted, Retriable),
            *(None, TransactionAborted, TaskFenced, TransactionAborted, None, TransactionAborted),
        )
    ],
).via("a producer that becomes due between two looks at the clock")
def test_each_record_counts_once_whatever_happens_to_whichever_round(
    partitions: int, records: int, looks: list[int], faults: list[Any]
) -> None:
    broker = broker_with(partitions, records)
    broker.commit_faults = [_fault(fault) for fault in faults]
    outputs = SlowOutputs(broker, looks)
    worker, _ = worker_on(broker, outputs, step_seconds=0.02)
    try:
        worker.run(until_caught_up=True)
    except InstanceFenced:  # so many fences are a rival's
        assert len(set(broker.values)) == len(broker.values)
        return
    assert sorted(broker.values) == everything(broker)
    for partition in range(partitions):
        own = [value for value in broker.values if value // FROM_EACH == partition]
        assert own == sorted(own)
    assert broker.positions == {} or all(
        broker.positions[TopicPartition("in", p)].offset == records for p in range(partitions)
    )


def _fault(fault: Any) -> Any:
    if fault is None:
        return (None, True)
    kind, done = fault
    return kind("a fault"), done and kind in (OutcomeUnknown, Retriable)
