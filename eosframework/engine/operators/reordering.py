"""The reorder step: holds records until stream time has passed them (ADR 20).

A repartition topic has the records of several upstream tasks, in an order that depends on their
speeds. What depends on order runs them in the order of a backfill instead:

    1. a record is held under its time of writing, its topic, its writer and its offset
    2. once stream time is greater than a time of writing, no further record with it can arrive
    3. the records up to it are run in the order of their places, and removed

A place is the key of an entry in a store with a changelog:

    1 byte    0 for rows of tables, which precede records of streams; 1 for others
    n bytes   the topic, and a zero
    n bytes   the writer, and a zero: the partition number of the upstream task as a text, because
              a backfill sorts its writers as texts
    8 bytes   the offset

The entry is the message, with its time of writing instead of the header for it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator
from dataclasses import dataclass

from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.engine.operators.watermarks import UpstreamTimes
from eosframework.engine.operators.windows import DATA, INDEX, NEVER, Agenda, Alarm, TimedState

_OFFSET = struct.Struct(">Q")
_HEAD = struct.Struct(">qiiH")
_HEADER = struct.Struct(">Hi")
_NONE = -1

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A held record, as a message.

    Args:
        topic_: the topic it was read from.
        partition_: the partition of the task.
        offset_: its offset.
        written: its time of writing, in milliseconds; at least stream time when it was read.
        timestamp_: its timestamp, in milliseconds.
        key_: the encoded key.
        value_: the encoded value.
        headers_: without the header for the time of writing.
    """

    topic_: str
    partition_: int
    offset_: int
    written: int
    timestamp_: int
    key_: bytes | None
    value_: bytes | None
    headers_: Headers | None

    def topic(self) -> str:
        """The topic it was read from."""
        return self.topic_

    def partition(self) -> int:
        """The task's partition."""
        return self.partition_

    def offset(self) -> int:
        """Its offset."""
        return self.offset_

    def key(self) -> bytes | None:
        """The encoded key."""
        return self.key_

    def value(self) -> bytes | None:
        """The encoded value."""
        return self.value_

    def timestamp(self) -> tuple[int, int]:
        """The timestamp's type, and the timestamp in milliseconds."""
        return 1, self.timestamp_

    def headers(self) -> Headers | None:
        """The headers in order, or None if there are none."""
        return self.headers_


class TooManyHeld(Exception):
    """The reason in the message of a record beyond the limit."""


class Reordering(TimedState):
    """The held records of one task.

    Args:
        store: the transaction of its store, with values of bytes.
        alarm: set to the stream time that releases a record, and to 0 above the limit.
        partition: the partition of the task.
        times: stream time, and whether it has passed all upstream tasks.
        tables: the topics whose records are rows of tables.
        limit: the most records that may be held.

    Attributes:
        count: the number of held records, or slightly more after records that failed.
    """

    def __init__(
        self,
        store: StoreTransaction,
        alarm: Alarm,
        partition: int,
        times: UpstreamTimes,
        tables: Collection[str],
        limit: int,
    ) -> None:
        super().__init__(alarm)
        self.count = 0
        self.limit = limit
        self._store = store
        self._partition = partition
        self._times = times
        self._tables = tables
        self._agenda = Agenda(store)

    def begin(self) -> None:
        """Load the first places, and count all."""
        self._agenda.load()
        self.count = sum(1 for _ in self._store.scan(INDEX, DATA))
        self.alarm.set(self.due())

    def hold(self, record: HeldRecord, writer: int) -> None:
        """Hold a record, until stream time has passed its time of writing.

        Args:
            record: the record.
            writer: its upstream task.
        """
        place = self._place(record, writer)
        self._agenda.add(record.written, place, (_packed(record), 0))
        self.count += 1
        self.alarm.set(0 if self.count > self.limit else record.written + 1)

    def due(self) -> int:
        """Return the stream time that releases the first record; 0 if too many are held."""
        if self.count > self.limit:
            return 0
        first = self._agenda.due()
        return first if first == NEVER else first + (not self._times.all_are_passed)

    @property
    def first(self) -> int:
        """The least time of writing of a held record; NEVER if none is held."""
        return self._agenda.due()

    def closing(self, now: int) -> Generator[HeldRecord]:
        """Yield the records that `now` has passed, in their order.

        If it has passed all upstream tasks, it has also passed its own time: the last records of a
        feed would wait for the next feed.

        A record is removed when the next one is requested, so one that failed is still held.
        """
        bound = now + self._times.all_are_passed
        while self._agenda.due() < bound:
            if (record := self._first()) is not None:
                yield record
                self._remove_first()

    def displaced(self) -> Generator[HeldRecord]:
        """Yield the first records while more than `limit` are held; see `windows`."""
        while self.count > self.limit:
            if (record := self._first()) is not None:
                yield record
                self._remove_first()

    def overfull(self) -> TooManyHeld:
        """Return the reason why a record is displaced."""
        return TooManyHeld(
            f"{self.count} records wait for stream time, and worker.reorder_limit is {self.limit}; "
            f"`eosframework status` names the upstream tasks that hold it"
        )

    def _first(self) -> HeldRecord | None:
        """Return the first record; None: its place was noted by a record that failed."""
        first = self._agenda.first()
        if first is None:
            self.count = 0
            return None
        entry = self._agenda.entry(*first)
        if entry is None:
            self._agenda.pass_first()
            self.count -= 1
            return None
        written, place = first
        try:
            topic, offset = _place_in(place)
            return _unpacked(entry[0], topic, self._partition, offset, written)
        except (struct.error, ValueError) as error:
            raise self._store.form.held.damaged(place, error) from error

    def _remove_first(self) -> None:
        self._agenda.remove_first()
        self.count -= 1

    def _place(self, record: HeldRecord, writer: int) -> bytes:
        turn = b"\0" if record.topic_ in self._tables else b"\1"
        return turn + f"{record.topic_}\0{writer}\0".encode() + _OFFSET.pack(record.offset_)


def _place_in(place: bytes) -> tuple[str, int]:
    """Return the topic and the offset in a place."""
    topic = place[1 : place.index(b"\0", 1)].decode()
    return topic, _OFFSET.unpack_from(place, len(place) - _OFFSET.size)[0]


def _packed(record: HeldRecord) -> bytes:
    headers = record.headers_ or ()
    parts = [
        _HEAD.pack(record.timestamp_, _length(record.key_), _length(record.value_), len(headers)),
        record.key_ or b"",
        record.value_ or b"",
    ]
    for name, value in headers:
        encoded = name.encode()
        parts += _HEADER.pack(len(encoded), _length(value)), encoded, value or b""
    return b"".join(parts)


def _unpacked(data: bytes, topic: str, partition: int, offset: int, written: int) -> HeldRecord:
    timestamp, key_length, value_length, count = _HEAD.unpack_from(data)
    key, at = _taken(data, _HEAD.size, key_length)
    value, at = _taken(data, at, value_length)
    headers: Headers = []
    for _ in range(count):
        name_length, length = _HEADER.unpack_from(data, at)
        name, at = _taken(data, at + _HEADER.size, name_length)
        content, at = _taken(data, at, length)
        headers.append(((name or b"").decode(), content))
    return HeldRecord(topic, partition, offset, written, timestamp, key, value, headers or None)


def _length(data: bytes | None) -> int:
    return _NONE if data is None else len(data)


def _taken(data: bytes, at: int, length: int) -> tuple[bytes | None, int]:
    """Return the bytes at a position, and the position after them."""
    if length == _NONE:
        return None, at
    if at + length > len(data):
        raise struct.error(f"a held record of {len(data)} bytes is cut")
    return data[at : at + length], at + length
