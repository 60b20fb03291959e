"""Retries of failed records: the task's queue of records in retry topics.

A failed record goes, in the same transaction as its offset, to a retry topic in which all records
have the same delay, so the first record of a topic is due first. The task reads this topic like any
other source, and keeps records in its queue until they are due; nothing else waits for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import cast

from eosframework.engine.codegen.compiler import CompiledPart
from eosframework.engine.failures.failure_handler import Delays
from eosframework.engine.failures.failure_headers import RetriedRecord
from eosframework.engine.task.input_queues import (
    BUFFER_RECORDS,
    ArrivalQueue,
    HasMore,
    Pending,
    Queue,
    TimestampQueue,
)
from eosframework.engine.worker.worker_plan import WorkerOptions
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import SubTopology

RETRY_RECORDS = 100
"""The most due records that are run before other records have their turn."""

Now = Callable[[], float]
"""Returns seconds since the epoch."""


@dataclass(slots=True)
class _Lane:
    """The waiting records of one retry partition, in offset order.

    Args:
        parts: batches of `RetriedRecord` records.
        size_bytes: estimated size of all parts.
        due_ms: time at which the first record is due.
    """

    parts: deque[Pending] = field(default_factory=deque[Pending])
    records: int = 0
    size_bytes: int = 0
    due_ms: int = 0


class RetryQueue:
    """A queue that runs due retries in turn with the records of another queue.

    Args:
        others: the queue of all other partitions.
        partitions: the partitions of retry and replay topics.
        now: see `Now`.
    """

    def __init__(self, others: Queue, partitions: Collection[TopicPartition], now: Now) -> None:
        self._others = others
        self._lanes = {partition: _Lane() for partition in partitions}
        self._now = now
        self._others_next = False

    def add(self, pending: Pending) -> None:
        """Append messages, which follow all others of their partition."""
        lane = self._lanes.get(pending.partition)
        if lane is None:
            self._others.add(pending)
            return
        messages = [RetriedRecord(message) for message in pending.messages]
        lane.parts.append(replace(pending, messages=messages))
        lane.records += len(messages)
        lane.size_bytes += pending.size_bytes
        if len(lane.parts) == 1:
            lane.due_ms = messages[0].due_ms

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that a partition is read up to `offset`; retry partitions need no ends."""
        if partition not in self._lanes:
            self._others.reached_end(partition, offset)

    def is_ready(self) -> bool:
        """Return whether a record may be run now."""
        return self._due() is not None or self._others.is_ready()

    def take(self, limit: int) -> Pending:
        """Return the next messages: due retries and other records in turn."""
        due = self._due()
        if due is None or (self._others_next and self._others.is_ready()):
            self._others_next = False
            return self._others.take(limit)
        self._others_next = True
        return self._take_due(due, min(limit, RETRY_RECORDS))

    def full(self) -> list[TopicPartition]:
        """Return the partitions with enough waiting records."""
        own = [p for p, lane in self._lanes.items() if lane.records >= BUFFER_RECORDS]
        return [*own, *self._others.full()]

    def sizes(self) -> dict[TopicPartition, int]:
        """Return the estimated bytes of the waiting records, for partitions that have any."""
        own = {p: lane.size_bytes for p, lane in self._lanes.items() if lane.parts}
        return own | self._others.sizes()

    def clear(self) -> None:
        """Discard everything; the partitions are read again."""
        self._lanes = {partition: _Lane() for partition in self._lanes}
        self._others.clear()

    def _due(self) -> _Lane | None:
        waiting = [(lane.due_ms, p) for p, lane in self._lanes.items() if lane.parts]
        if not waiting:
            return None
        due_ms, partition = min(waiting)
        return self._lanes[partition] if due_ms <= self._now() * 1000 else None

    def _take_due(self, lane: _Lane, limit: int) -> Pending:
        first = lane.parts[0]
        now_ms, count = self._now() * 1000, 1
        while count < min(limit, len(first.messages)) and _due_ms(first, count) <= now_ms:
            count += 1
        taken = first.split(count) if count < len(first.messages) else lane.parts.popleft()
        lane.records -= count
        lane.size_bytes -= taken.size_bytes
        if lane.parts:
            lane.due_ms = _due_ms(lane.parts[0], 0)
        return taken


def _due_ms(part: Pending, index: int) -> int:
    return cast("RetriedRecord", part.messages[index]).due_ms


def delays_of(part: SubTopology) -> Delays:
    """Return the retry topics of a sub-topology's sources."""
    delays: dict[str, dict[int, str]] = {}
    for source in part.sources:
        if source.retry_of is not None and source.retry_of.delay_ms is not None:
            delays.setdefault(source.retry_of.topic, {})[source.retry_of.delay_ms] = source.topic
    return delays


def task_queue(
    compiled: CompiledPart,
    partitions: Collection[TopicPartition],
    options: WorkerOptions,
    clock: Callable[[], float],
    now: Now,
    has_more: HasMore,
) -> Queue:
    """Return the queue of a task.

    Args:
        compiled: the task's sub-topology.
        partitions: the partitions that it reads.
        options: the options of its worker.
        clock: seconds, monotonic.
        now: see `Now`.
        has_more: see `TimestampQueue`.
    """
    again = {p for p in partitions if compiled.sources[p.topic].source.retry_of is not None}
    first = [p for p in partitions if p not in again]
    queue: Queue = ArrivalQueue()
    if len(first) > 1:
        times = {p: compiled.sources[p.topic].time_of for p in compiled.in_turn(first)}
        if compiled.merges:
            queue = TimestampQueue(times, options.max_task_idle_seconds, clock, has_more)
        else:
            queue = TimestampQueue(times, 0.0, clock)
    return RetryQueue(queue, again, now) if again else queue
