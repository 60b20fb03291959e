"""A worker over five records in memory, with a function that may be slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan
from eosframework.testing.memory_kafka import MemoryStartPositions
from eosframework.topology.graph.graph import Operator
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import (
    OPTIONS,
    Broker,
    MemoryLog,
    MemoryOutputs,
)
from tests.unit.engine.messages import compiled, part_of, sink, step


def worker_of(function: Callable[[Any], Any], *, timeout_seconds: float = 30) -> Worker:
    """Return a worker that gives five records to a function."""
    broker = Broker()
    broker.fill(0, *range(5))
    plan = Plan(
        "app",
        {"sub": part_of(compiled(step(Operator.MAP_VALUES, function, sink())))},
        lambda sub, partition: TransactionalId.make("app", sub, partition),
    )
    options = replace(OPTIONS, transaction_timeout_seconds=timeout_seconds)
    return Worker(plan, MemoryLog(broker), MemoryOutputs(broker), MemoryStartPositions(), options)
