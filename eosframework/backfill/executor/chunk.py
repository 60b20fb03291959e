"""The open transaction of an attempt: its records, kept for a repetition, and its counters."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from eosframework.processing.codegen.compiler import CompiledPart
from eosframework.processing.ports import Message
from eosframework.processing.task import Task
from eosframework.records import TopicPartition

Run = tuple[TopicPartition, Sequence[Message]]
"""Messages of one partition, in offset order."""


class Chunk:
    """Records in processing order.

    Args:
        most_records: capacity in records.
        most_bytes: capacity in bytes of values.
    """

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._runs: deque[Run] = deque()
        self._records = 0
        self._bytes = 0

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def is_full(self) -> bool:
        """True if it should be committed before more records are added."""
        return self._records >= self._most_records or self._bytes >= self._most_bytes

    def add(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Append messages."""
        self._runs.append((partition, messages))
        self._records += len(messages)
        self._bytes += bytes_in(messages)

    def records_before(self, positions: Mapping[TopicPartition, int]) -> int:
        """Return the number of records before the given positions."""
        return sum(place_of(messages, positions[p]) for p, messages in self._runs)

    def drop_before(self, positions: Mapping[TopicPartition, int]) -> None:
        """Remove the records before the given positions, which are committed."""
        kept = deque[Run]()
        for partition, messages in self._runs:
            if rest := messages[place_of(messages, positions[partition]) :]:
                kept.append((partition, rest))
        self._runs = kept
        self._records = sum(len(messages) for _, messages in kept)
        self._bytes = sum(bytes_in(messages) for _, messages in kept)


def place_of(messages: Sequence[Message], position: int) -> int:
    """Return the number of messages before a position."""
    if not messages or messages[-1].offset() < position:
        return len(messages)
    return bisect_left(messages, position, key=lambda message: message.offset())


def bytes_in(messages: Sequence[Message]) -> int:
    """Return the size of the values."""
    return sum(len(message.value() or b"") for message in messages)


class Counted(NamedTuple):
    """Numbers of late, skipped and dead-lettered records."""

    late: int
    skipped: int
    dead_letters: int


class Counters:
    """The counters of one task.

    Args:
        task: counts all records that it runs, including repeated ones.
        compiled: its sub-topology.
    """

    def __init__(self, task: Task, compiled: CompiledPart) -> None:
        self.first_time: int | None = None
        self._task = task
        self._times_are_known = all(
            source.source.timestamp is None for source in compiled.sources.values()
        )
        self._mark = self._all()

    def saw(self, messages: Sequence[Message]) -> None:
        """Update the earliest event time, if it is the record's timestamp."""
        if self._times_are_known:
            first = min(message.timestamp()[1] for message in messages)
            if self.first_time is None or first < self.first_time:
                self.first_time = first

    def open(self) -> Counted:
        """Return the counts since the last mark."""
        return Counted(*(now - then for now, then in zip(self._all(), self._mark, strict=True)))

    def mark(self) -> None:
        """Restart the counts after a commit or an abort."""
        self._mark = self._all()

    def _all(self) -> Counted:
        failures = self._task.failures
        return Counted(self._task.late_records.count, failures.skipped, failures.dead_letters)
