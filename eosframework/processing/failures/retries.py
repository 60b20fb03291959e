"""Records that are processed again: their next attempt, and how a task waits for it.

What fails goes, in the same transaction as its offset, to a topic in which all records wait
equally long, so the first one in it is the first one due. The task reads that topic like any
other source, and leaves what is not due in its queue; nothing else waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import cast

from eosframework.processing.codegen.compiler import CompiledPart
from eosframework.processing.failures.failures import Delays
from eosframework.processing.failures.retried_record import Repeated
from eosframework.processing.input_queues import (
    BUFFER_RECORDS,
    ArrivalQueue,
    Pending,
    Queue,
    TimestampQueue,
)
from eosframework.processing.plan import WorkerOptions
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import SubTopology

AGAIN_RECORDS = 100
"""So many of those that are due are run before others have their turn."""

Now = Callable[[], float]
"""Returns the time in seconds since the epoch."""


@dataclass(slots=True)
class _Lane:
    """What waits of one partition, in the order of its offsets.

    Args:
        parts: as they came, of `Repeated` records.
        size_bytes: of all parts, estimated.
        due_ms: when the first record is due.
    """

    parts: deque[Pending] = field(default_factory=deque[Pending])
    records: int = 0
    size_bytes: int = 0
    due_ms: int = 0


class AgainQueue:
    """A task's queue in front of which stand records that are processed again.

    Args:
        others: what waits of all other partitions.
        partitions: of topics of records that are processed again.
        now: see `Now`.
    """

    def __init__(self, others: Queue, partitions: Collection[TopicPartition], now: Now) -> None:
        self._others = others
        self._lanes = {partition: _Lane() for partition in partitions}
        self._now = now
        self._others_next = False

    def add(self, pending: Pending) -> None:
        """Queue messages that came behind all others of their partition."""
        lane = self._lanes.get(pending.partition)
        if lane is None:
            self._others.add(pending)
            return
        messages = [Repeated(message) for message in pending.messages]
        lane.parts.append(replace(pending, messages=messages))
        lane.records += len(messages)
        lane.size_bytes += pending.size_bytes
        if len(lane.parts) == 1:
            lane.due_ms = messages[0].due_ms

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that a partition is read up to `offset`; nothing waits for those of this queue."""
        if partition not in self._lanes:
            self._others.reached_end(partition, offset)

    def is_ready(self) -> bool:
        """Tell whether there is a record that may be run now."""
        return self._due() is not None or self._others.is_ready()

    def take(self, limit: int) -> Pending:
        """Return what to run next: in turns what is due, and the others."""
        due = self._due()
        if due is None or (self._others_next and self._others.is_ready()):
            self._others_next = False
            return self._others.take(limit)
        self._others_next = True
        return self._take_due(due, min(limit, AGAIN_RECORDS))

    def full(self) -> list[TopicPartition]:
        """Return the partitions of which enough waits."""
        own = [p for p, lane in self._lanes.items() if lane.records >= BUFFER_RECORDS]
        return [*own, *self._others.full()]

    def waiting_bytes(self) -> int:
        """Return the size of all that waits, estimated."""
        own = sum(lane.size_bytes for lane in self._lanes.values())
        return own + self._others.waiting_bytes()

    def sizes(self) -> dict[TopicPartition, int]:
        """Return the estimated size of what waits, in bytes, by partition that has any."""
        own = {p: lane.size_bytes for p, lane in self._lanes.items() if lane.parts}
        return own | self._others.sizes()

    def is_empty(self) -> bool:
        """Tell whether nothing waits, due or not."""
        return self._others.is_empty() and not any(lane.parts for lane in self._lanes.values())

    def clear(self) -> None:
        """Forget everything; the partitions are read again."""
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
    return cast("Repeated", part.messages[index]).due_ms


def delays_of(part: SubTopology) -> Delays:
    """Return where failed records of a sub-topology's sources wait."""
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
) -> Queue:
    """Return the queue of a task.

    Args:
        compiled: the task's sub-topology.
        partitions: those that it reads.
        options: of its worker.
        clock: seconds, monotonic.
        now: see `Now`.
    """
    again = {p for p in partitions if compiled.sources[p.topic].source.retry_of is not None}
    first = [p for p in partitions if p not in again]
    queue: Queue = ArrivalQueue()
    if len(first) > 1:
        times = {p: compiled.sources[p.topic].time_of for p in compiled.in_turn(first)}
        queue = TimestampQueue(times, options.max_task_idle_seconds, clock)
    return AgainQueue(queue, again, now) if again else queue
