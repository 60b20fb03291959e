"""Each record counts once, whatever the outcome of each commit of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import (
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    TaskFenced,
    TransactionAborted,
    TransactionError,
)
from eosframework.records import TopicPartition
from eosframework.testing.memory_kafka import MemoryStartPositions
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import (
    OPTIONS,
    Broker,
    MemoryLog,
    MemoryOutputs,
)
from tests.unit.engine.messages import compiled, part_of, sink

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


def worker_on(broker: Broker) -> Worker:
    plan = Plan(
        "app",
        {"sub": part_of(compiled(sink()))},
        lambda sub, partition: TransactionalId.make("app", sub, partition),
    )
    log, outputs = MemoryLog(broker), MemoryOutputs(broker)
    return Worker(plan, log, outputs, MemoryStartPositions(), OPTIONS, clock=Clock(0.02))


def broker_with(partitions: int, records: int) -> Broker:
    broker = Broker()
    for partition in range(partitions):
        broker.fill(partition, *(partition * FROM_EACH + number for number in range(records)))
    return broker


def everything(broker: Broker) -> list[int]:
    return [
        p.partition * FROM_EACH + n for p, log in broker.inputs.items() for n in range(len(log))
    ]


@given(
    partitions=st.integers(1, 5),
    records=st.integers(0, 60),
    faults=st.lists(st.tuples(st.sampled_from(FAULTS), st.booleans()) | st.none(), max_size=12),
)
def test_each_record_counts_once_whatever_happens_to_each_commit(
    partitions: int, records: int, faults: list[Any]
) -> None:
    broker = broker_with(partitions, records)
    broker.commit_faults = [_fault(fault) for fault in faults]
    worker = worker_on(broker)
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
