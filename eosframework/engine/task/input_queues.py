"""Queues of fetched messages, and the choice of the next ones.

A task with one source partition runs its records in log order. A task with several runs the record
with the smallest timestamp among the heads of its partitions, so that joins and windows give the
same results when the same input is processed again. This needs the head of every partition: an
empty partition is waited for until it has been read to the end of its log for `max_idle`
(`max.task.idle.ms` of Kafka Streams, KIP-353 and KIP-695): records of an open transaction are in
the log already. Order within a partition is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message

BUFFER_RECORDS = 4000
"""Records waiting in a partition at which it is paused."""

TimeOf = Callable[[Message], int]
"""Returns a message's event time in milliseconds."""

HasMore = Callable[[TopicPartition, int], bool]
"""Returns whether a partition's log is known to continue after an offset."""


def never_more(partition: TopicPartition, offset: int) -> bool:
    """Return False: the last stable offset counts as the end."""
    return False


@dataclass(slots=True)
class Pending:
    """Messages of one partition, with the group membership under which they were fetched."""

    partition: TopicPartition
    messages: Sequence[Message]
    membership: object
    size_bytes: int = 0
    """Estimated size of the values; it bounds the memory of a worker."""

    def split(self, count: int) -> Pending:
        """Remove the first `count` messages, fewer than there are, and return them."""
        size_bytes = self.size_bytes * count // len(self.messages)
        head, self.messages = self.messages[:count], self.messages[count:]
        self.size_bytes -= size_bytes
        return Pending(self.partition, head, self.membership, size_bytes)

    def followed_by(self, other: Pending) -> Pending:
        """Return the messages followed by those of `other`."""
        messages = [*self.messages, *other.messages]
        size_bytes = self.size_bytes + other.size_bytes
        return Pending(self.partition, messages, self.membership, size_bytes)


class Queue(Protocol):
    """The pending messages of one task."""

    def add(self, pending: Pending) -> None:
        """Append messages, which follow all others of their partition."""
        ...

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that a partition is read up to `offset`, its last stable offset."""
        ...

    def is_ready(self) -> bool:
        """Return whether a record may be run now."""
        ...

    def take(self, limit: int) -> Pending:
        """Return the next messages, at most `limit`, of one partition."""
        ...

    def full(self) -> list[TopicPartition]:
        """Return the partitions with enough waiting records."""
        ...

    def sizes(self) -> dict[TopicPartition, int]:
        """Return the estimated bytes of the waiting records, for partitions that have any."""
        ...

    def clear(self) -> None:
        """Discard everything; the partitions are read again."""
        ...


class ArrivalQueue:
    """The queue of a task with one source partition: first in, first out."""

    def __init__(self) -> None:
        self._waiting: deque[Pending] = deque()
        self._bytes = 0

    def add(self, pending: Pending) -> None:
        """Append messages, merged with the last ones if their membership is the same.

        A worker with pending records fetches single messages, so that rebalances are noticed.
        """
        self._bytes += pending.size_bytes
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.membership is pending.membership:
            last.messages = [*last.messages, *pending.messages]
            last.size_bytes += pending.size_bytes
        else:
            self._waiting.append(pending)

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Ignore the end: no partition waits for another."""

    def is_ready(self) -> bool:
        """Return whether any record waits."""
        return bool(self._waiting)

    def take(self, limit: int) -> Pending:
        """Return the next messages, at most `limit`."""
        first = self._waiting[0]
        whole = limit >= len(first.messages)
        taken = self._waiting.popleft() if whole else first.split(limit)
        self._bytes -= taken.size_bytes
        return taken

    def full(self) -> list[TopicPartition]:
        """Return no partition: every record can be run."""
        return []

    def sizes(self) -> dict[TopicPartition, int]:
        """Return the estimated bytes of the waiting records, for partitions that have any."""
        return {self._waiting[0].partition: self._bytes} if self._waiting else {}

    def clear(self) -> None:
        """Discard everything."""
        self._waiting.clear()
        self._bytes = 0


@dataclass(slots=True)
class _Lane:
    """The waiting messages of one partition.

    Args:
        parts: in offset order.
        times: event times of the messages of the first part, as far as they were read.
        records: number of messages in all parts.
        size_bytes: estimated size of all parts.
        fetched_to: the next offset to fetch.
        ended_at: the last stable offset up to which the partition was read.
        empty_since: clock time since which it has been empty and at its end.
    """

    parts: deque[Pending] = field(default_factory=deque[Pending])
    times: list[int] = field(default_factory=list[int])
    records: int = 0
    size_bytes: int = 0
    fetched_to: int = 0
    ended_at: int | None = None
    empty_since: float | None = None


class TimestampQueue:
    """The queue of a task with several source partitions: smallest timestamp first.

    Args:
        time_of: by source partition; of equal timestamps the partition listed first comes first.
        max_idle_seconds: the time for which an empty partition at its end is waited for.
        clock: seconds, monotonic.
        has_more: returns True for an open transaction at the last stable offset.
    """

    def __init__(
        self,
        time_of: Mapping[TopicPartition, TimeOf],
        max_idle_seconds: float,
        clock: Callable[[], float],
        has_more: HasMore = never_more,
    ) -> None:
        self._has_more = has_more
        self._time_of = time_of
        self._max_idle_seconds = max_idle_seconds
        self._clock = clock
        self._lanes = {partition: _Lane() for partition in time_of}
        self._ranks = {partition: rank for rank, partition in enumerate(time_of)}

    def add(self, pending: Pending) -> None:
        """Append messages, which follow all others of their partition."""
        lane = self._lanes[pending.partition]
        lane.parts.append(pending)
        lane.records += len(pending.messages)
        lane.size_bytes += pending.size_bytes
        lane.fetched_to = pending.messages[-1].offset() + 1
        lane.empty_since = None

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that a partition is read up to `offset`, its last stable offset."""
        self._lanes[partition].ended_at = offset

    def is_ready(self) -> bool:
        """Return whether a record waits and no other partition may still deliver an earlier one."""
        if not any(lane.parts for lane in self._lanes.values()):
            return False
        return all(lane.parts or self._is_idle(p, lane) for p, lane in self._lanes.items())

    def take(self, limit: int) -> Pending:
        """Return messages of the partition with the earliest head, up to the next head's time."""
        heads = [
            (self._head(p), rank, p) for p, rank in self._ranks.items() if self._lanes[p].parts
        ]
        (_, _, partition), *others = sorted(heads)
        lane = self._lanes[partition]
        first = lane.parts[0]
        count = limit if not others else self._run_length(partition, min(others), limit)
        if count >= len(first.messages):
            lane.times = []
            taken = lane.parts.popleft()
        else:
            del lane.times[:count]
            taken = first.split(count)
        lane.records -= len(taken.messages)
        lane.size_bytes -= taken.size_bytes
        return taken

    def full(self) -> list[TopicPartition]:
        """Return the partitions with enough waiting records."""
        return [p for p, lane in self._lanes.items() if lane.records >= BUFFER_RECORDS]

    def sizes(self) -> dict[TopicPartition, int]:
        """Return the estimated bytes of the waiting records, for partitions that have any."""
        return {p: lane.size_bytes for p, lane in self._lanes.items() if lane.parts}

    def clear(self) -> None:
        """Discard everything; the partitions are read again."""
        self._lanes = {partition: _Lane() for partition in self._lanes}

    def _is_idle(self, partition: TopicPartition, lane: _Lane) -> bool:
        """Return whether an empty partition need not be waited for."""
        if lane.ended_at is None or lane.ended_at < lane.fetched_to:
            return False
        if self._has_more(partition, lane.ended_at):
            lane.empty_since = None
            return False
        if lane.empty_since is None:
            lane.empty_since = self._clock()
        return self._clock() - lane.empty_since >= self._max_idle_seconds

    def _head(self, partition: TopicPartition) -> int:
        return self._time(partition, 0)

    def _run_length(
        self, partition: TopicPartition, rival: tuple[int, int, TopicPartition], limit: int
    ) -> int:
        """Return the number of leading messages that precede another partition's head."""
        available = min(limit, len(self._lanes[partition].parts[0].messages))
        count, rank = 1, self._ranks[partition]
        while count < available and (self._time(partition, count), rank, partition) < rival:
            count += 1
        return count

    def _time(self, partition: TopicPartition, index: int) -> int:
        lane = self._lanes[partition]
        messages, time_of = lane.parts[0].messages, self._time_of[partition]
        while len(lane.times) <= index:
            lane.times.append(time_of(messages[len(lane.times)]))
        return lane.times[index]
