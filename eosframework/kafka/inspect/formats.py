"""Decoding of the records in `__transaction_state` and `__consumer_offsets`.

Sources: TransactionLogKey.json, TransactionLogValue.json (transaction-coordinator) and
OffsetCommitKey.json, OffsetCommitValue.json (group-coordinator) of Apache Kafka 4.3; the encoding
of versions and tagged fields is that of KIP-482 and KIP-915.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from eosframework.errors import RunError
from eosframework.records import TopicPartition

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"

Element = TypeVar("Element")


class TxnState(StrEnum):
    """States of a transactional id, by the names that brokers use."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


_STATES = tuple(TxnState)
"""Indexed by the number of each state in the log (TxnState.java)."""

OPEN_STATES = frozenset(
    {
        TxnState.ONGOING,
        TxnState.PREPARE_COMMIT,
        TxnState.PREPARE_ABORT,
        TxnState.PREPARE_EPOCH_FENCE,
    }
)
"""States in which the transaction's partitions block their readers."""


@dataclass(frozen=True, slots=True)
class StateValue:
    """A state transition of an id, as the coordinator logged it; times in ms since 1970.

    Args:
        started_ms: the start of its transaction; None: it has had none.
        partitions: of the transaction; those of `__consumer_offsets` stand for groups.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState
    partitions: tuple[TopicPartition, ...]
    updated_ms: int
    started_ms: int | None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed next offset of a partition."""

    group: str
    partition: TopicPartition
    offset: int


def coordinator_partition(name: str, partitions: int) -> int:
    """Return the partition of an internal topic whose leader coordinates `name`.

    It is the absolute value of Java's String.hashCode, of a transactional id or of a group, modulo
    the number of partitions (TransactionStateManager.partitionFor, GroupCoordinatorService).
    """
    hashed = 0
    units = name.encode("utf-16-be")
    for (unit,) in struct.iter_unpack(">H", units):
        hashed = (31 * hashed + unit) & 0xFFFF_FFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def transactional_id_of(key: bytes) -> str | None:
    """Return the id in a key of `__transaction_state`; None: the key is of an unknown kind.

    Raises:
        RunError: it is truncated.
    """
    with _naming("TransactionLogKey", key):
        reader = _Reader(key)
        return reader.string() if reader.int16() == 0 else None


def decode_state(value: bytes) -> StateValue:
    """Decode a value of `__transaction_state`.

    Raises:
        RunError: its version is unknown, or it is truncated.
    """
    return _decoded("TransactionLogValue", value, newest=1, decode=_state)


def decode_offset(key: bytes, value: bytes) -> CommittedOffset | None:
    """Decode a committed position from `__consumer_offsets`; None: it is another kind of record.

    Raises:
        RunError: its version is unknown, or it is truncated.
    """
    with _naming("OffsetCommitKey", key):
        reader = _Reader(key)
        if reader.int16() not in (0, 1):
            return None
        group, partition = reader.string(), TopicPartition(reader.string(), reader.int32())
    offset = _decoded("OffsetCommitValue", value, newest=4, decode=lambda r, _: r.int64())
    return CommittedOffset(group, partition, offset)


def _decoded(
    name: str, value: bytes, newest: int, decode: Callable[[_Reader, int], Element]
) -> Element:
    with _naming(name, value):
        reader = _Reader(value)
        version = reader.int16()
        if 0 <= version <= newest:
            return decode(reader, version)
    raise RunError(
        f"the brokers write version {version} of {name}, and this eosframework reads 0 to "
        f"{newest}; install a newer one"
    )


@contextmanager
def _naming(name: str, data: bytes) -> Generator[None]:
    try:
        yield
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RunError(f"a {name} of {len(data)} bytes cannot be read: {error}") from error


def _state(reader: _Reader, version: int) -> StateValue:
    flexible = version >= 1
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = _STATES[reader.int8()]
    partitions = reader.array(lambda: _topic(reader, flexible=flexible), compact=flexible)
    updated_ms, started_ms = reader.int64(), reader.int64()
    return StateValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=tuple(sorted(entry for topic in partitions for entry in topic)),
        updated_ms=updated_ms,
        started_ms=started_ms if started_ms >= 0 else None,
    )


def _topic(reader: _Reader, *, flexible: bool) -> list[TopicPartition]:
    topic = reader.compact_string() if flexible else reader.string()
    numbers = reader.array(reader.int32, compact=flexible)
    if flexible:
        reader.skip_tagged_fields()
    return [TopicPartition(topic, number) for number in numbers]


class _Reader:
    """Reads values from the front of bytes. Raises struct.error or IndexError at their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int8(self) -> int:
        return self._number(">b")

    def int16(self) -> int:
        return self._number(">h")

    def int32(self) -> int:
        return self._number(">i")

    def int64(self) -> int:
        return self._number(">q")

    def string(self) -> str:
        return self._bytes(self.int16()).decode()

    def compact_string(self) -> str:
        return self._bytes(self.varint() - 1).decode()

    def array(self, element: Callable[[], Element], *, compact: bool) -> list[Element]:
        """Return the elements; empty if the array is null."""
        count = self.varint() - 1 if compact else self.int32()
        return [element() for _ in range(count)]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip_tagged_fields(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self._bytes(self.varint())

    def _bytes(self, length: int) -> bytes:
        if length < 0 or self._at + length > len(self._data):
            raise IndexError(f"{length} bytes wanted at {self._at}")
        self._at += length
        return self._data[self._at - length : self._at]

    def _number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return value
