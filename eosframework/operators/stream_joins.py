"""Stream–stream joins: each record meets those of the other side within an interval of its time.

    b"l" or b"r" + slice (8) + key       what came from one side, in the order in which it came
    b"u" + side (1) + time (8) + key     of these, what has met nothing so far; left and outer only

A record's interval is over when stream time has passed its end by more than the grace. From then
on it meets nothing: that depends on times alone, and not on when the entry is removed. One that
comes when its interval is over is late and passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from eosframework.operators.packing import packed, unpacked
from eosframework.operators.session import StoreSession
from eosframework.serdes import Serde

_TIME = struct.Struct(">Q")
_SIDES = (b"l", b"r")
_UNPAIRED = (b"ul", b"ur")

Paired = tuple[Any, int]
"""A result and its timestamp in milliseconds, the later one of both records."""

Unpaired = tuple[bytes, Any, int, bool]
"""Key, value and timestamp of a record that met nothing, and whether it is of the left side."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Which records meet: a right one from `before_ms` earlier to `after_ms` later than a left one.

    Args:
        grace_ms: for how long, in stream time, records that come out of order are waited for.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    @property
    def slice_ms(self) -> int:
        """Length of the slices in which records are kept: a lookup reads two or three."""
        return max(1, self.before_ms + self.after_ms)

    def reach(self, side: int) -> tuple[int, int]:
        """Return how far back and ahead of its own time a record of one side looks."""
        return (self.before_ms, self.after_ms) if side == 0 else (self.after_ms, self.before_ms)

    def oldest_open(self, side: int, stream_time: int) -> int:
        """Return the earliest time of a record of one side whose interval is not over."""
        return stream_time - self.reach(side)[1] - self.grace_ms


class StreamJoining:
    """Lets the records of two streams meet.

    Args:
        session: of the store; of bytes.
        by: takes the left and the right value.
        interval: which records meet.
        values: serdes of both sides.
        keeps_unpaired: for each side, whether records that meet nothing have a result as well.
    """

    def __init__(
        self,
        session: StoreSession,
        by: Callable[[Any, Any], Any],
        interval: Interval,
        values: tuple[Serde, Serde],
        keeps_unpaired: tuple[bool, bool],
    ) -> None:
        self._session = session
        self._by = by
        self._interval = interval
        self._slice_ms = interval.slice_ms
        self._values = values
        self._keeps_unpaired = keeps_unpaired
        self.late = 0

    def left(self, key: bytes, value: Any, timestamp: int, stream_time: int) -> list[Paired]:
        """Take a record of the left side; return its results."""
        return self._meet(0, key, value, timestamp, stream_time)

    def right(self, key: bytes, value: Any, timestamp: int, stream_time: int) -> list[Paired]:
        """Take a record of the right side; return its results."""
        return self._meet(1, key, value, timestamp, stream_time)

    def unpaired(self, stream_time: int) -> list[Unpaired]:
        """Remove what can meet nothing any more; return what has met nothing, earliest first."""
        found = [
            record
            for side in (0, 1)
            if self._keeps_unpaired[side]
            for record in self._left_over(side, stream_time)
        ]
        for side, prefix in enumerate(_SIDES):
            oldest = max(0, self._interval.oldest_open(side, stream_time)) // self._slice_ms
            for name in [n for n, _ in self._session.scan(prefix, prefix + _TIME.pack(oldest))]:
                self._session.delete(name)
        return sorted(found, key=lambda record: record[2])

    def _meet(
        self, side: int, key: bytes, value: Any, timestamp: int, stream_time: int
    ) -> list[Paired]:
        time = max(timestamp, 0)
        if time < self._interval.oldest_open(side, stream_time):
            self.late += 1
            return []
        encode = self._values[side].encode
        data = value if encode is None else encode(value)
        partners = sorted(
            self._partners(side, key, time, stream_time), key=lambda partner: partner[0]
        )
        self._append(_SIDES[side] + _TIME.pack(time // self._slice_ms) + key, time, data)
        if self._keeps_unpaired[side] and not partners:
            self._append(_UNPAIRED[side] + _TIME.pack(time) + key, time, data)
        if self._keeps_unpaired[1 - side]:
            for other_time in {other_time for other_time, _ in partners}:
                name = _UNPAIRED[1 - side] + _TIME.pack(other_time) + key
                if self._session.get(name) is not None:
                    self._session.delete(name)
        return [self._pair(side, data, time, other) for other in partners]

    def _partners(
        self, side: int, key: bytes, time: int, stream_time: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield what the other side has within reach, earliest slice first."""
        other = 1 - side
        back, ahead = self._interval.reach(side)
        first = max(time - back, self._interval.oldest_open(other, stream_time), 0)
        last = time + ahead
        prefix = _SIDES[other]
        for slice_ in range(first // self._slice_ms, last // self._slice_ms + 1):
            entry = self._session.get(prefix + _TIME.pack(slice_) + key)
            if entry is not None:
                for other_time, data in unpacked(entry[0]):
                    if data is not None and first <= other_time <= last:
                        yield other_time, data

    def _pair(self, side: int, data: bytes, time: int, other: tuple[int, bytes]) -> Paired:
        """Return one result; each call of the function has values of its own."""
        other_time, other_data = other
        left, right = (data, other_data) if side == 0 else (other_data, data)
        value = self._by(self._decoded(0, left), self._decoded(1, right))
        return value, max(time, other_time)

    def _left_over(self, side: int, stream_time: int) -> Iterator[Unpaired]:
        prefix = _UNPAIRED[side]
        oldest = max(0, self._interval.oldest_open(side, stream_time))
        for name, (data, _) in list(self._session.scan(prefix, prefix + _TIME.pack(oldest))):
            self._session.delete(name)
            key = name[len(prefix) + _TIME.size :]
            for time, value in unpacked(data):
                yield key, self._decoded(side, value), time, side == 0

    def _append(self, name: bytes, time: int, data: bytes) -> None:
        entry = self._session.get(name)
        before: bytes = b"" if entry is None else entry[0]
        self._session.put(name, (before + packed(time, data), time))

    def _decoded(self, side: int, data: bytes | None) -> Any:
        decode = self._values[side].decode
        return data if data is None or decode is None else decode(data)
