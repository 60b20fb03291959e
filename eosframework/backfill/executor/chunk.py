"""The records of an open transaction, kept until it is committed to be run again after an abort."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from eosframework.processing.ports import Message
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
