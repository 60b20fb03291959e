"""Stream–stream joins: each record meets those of the other side within an interval of its time.

    0 + due (8) + side (1) + key          what has met nothing so far; of left and outer joins only
    1 + side (1) + slice (8) + key        what came from one side, in the order in which it came
    2 + side (1) + slice (8) + piece (4) + key    what of it has no room there
    ff                                    the interval that the store was made for

A record's interval is over when stream time has passed its end by more than the grace. From then
on it meets nothing: that depends on times alone, and not on when the entry is removed. One that
comes when its interval is over is late.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from eosframework.errors import RunError
from eosframework.operators.agenda import DATA, Agenda
from eosframework.operators.entries import Entry
from eosframework.operators.packing import packed, unpacked
from eosframework.operators.session import StoreSession
from eosframework.operators.timed import Alarm, Closing
from eosframework.operators.window_entries import MARK_KEY
from eosframework.serdes import Serde

_TIME = struct.Struct(">Q")
_PIECE = struct.Struct(">I")
_LEFT, _RIGHT = 0, 1
_SIDES = (b"l", b"r")
_MORE = b"\x02"

PIECE_BYTES = 16_384
"""With more the records of a key and slice go on in another entry: entries are written whole, and
brokers take no messages of any size."""


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
        return max(1, self.before_ms + self.after_ms, self.grace_ms // 16)

    def reach(self, side: int) -> tuple[int, int]:
        """Return how far back and ahead of its own time a record of one side looks."""
        if side == _LEFT:
            return self.before_ms, self.after_ms
        return self.after_ms, self.before_ms

    def over_after(self, side: int) -> int:
        """Return how long after the time of a record of one side its interval is over."""
        return self.reach(side)[1] + self.grace_ms + 1

    def __str__(self) -> str:
        return f"-{self.before_ms}/+{self.after_ms}/{self.grace_ms} ms"


class Unpaired(NamedTuple):
    """A record that met nothing."""

    key: bytes
    value: Any
    timestamp: int
    is_left: bool


class StreamJoining(Closing):
    """Lets the records of two streams meet.

    Args:
        session: of the store; of bytes.
        by: takes the left and the right value.
        interval: which records meet.
        values: serdes of both sides.
        keeps_unpaired: for each side, whether records that meet nothing go on as well.
        alarm: is set to when an interval is over.
    """

    def __init__(
        self,
        session: StoreSession,
        by: Callable[[Any, Any], Any],
        interval: Interval,
        values: tuple[Serde, Serde],
        keeps_unpaired: tuple[bool, bool],
        alarm: Alarm,
    ) -> None:
        super().__init__(alarm)
        self._session = session
        self._by = by
        self._interval = interval
        self._slice_ms = interval.slice_ms
        self._over_after = interval.over_after(_LEFT), interval.over_after(_RIGHT)
        self._values = values
        self._keeps_unpaired = keeps_unpaired
        self._agenda = Agenda(session)
        self._slices: tuple[set[int], set[int]] = (set(), set())
        """Those that have entries, of each side."""

    def left(
        self, key: bytes, value: Any, timestamp: int, stream_time: int
    ) -> list[tuple[Any, int]] | None:
        """Take a record of the left side.

        Returns:
            Results, each with the later timestamp of both records; None: the record is late.
        """
        return self._meet(_LEFT, key, value, timestamp, stream_time)

    def right(
        self, key: bytes, value: Any, timestamp: int, stream_time: int
    ) -> list[tuple[Any, int]] | None:
        """Take a record of the right side; see `left`."""
        return self._meet(_RIGHT, key, value, timestamp, stream_time)

    def begin(self) -> None:
        """Find out what the store holds.

        Raises:
            RunError: it was made for another interval.
        """
        mark, wanted = self._session.get(MARK_KEY), str(self._interval).encode()
        if mark is None:
            self._session.put(MARK_KEY, (wanted, 0))
        elif mark[0] != wanted:
            raise RunError(
                f"store {self._session.form.store!r} holds records that wait for others within "
                f"{mark[0].decode()}, and the topology declares {self._interval}; give the join "
                f"another store name: store: NAME. What waits now meets nothing more"
            )
        self._agenda.load()
        for side in (_LEFT, _RIGHT):
            self._slices[side].clear()
            self._slices[side].update(self._stored_slices(side))
        self.alarm.set(self.due())

    def due(self) -> int:
        """Return the stream time at which the next interval is over, or earlier."""
        slices = [self._slice_over(side, min(s)) for side, s in enumerate(self._slices) if s]
        return min([self._agenda.due(), *slices])

    def closing(self, now: int) -> Iterator[Unpaired]:
        """Yield what meets nothing any more, and remove it when the next one is asked for."""
        while (first := self._agenda.first()) is not None and first[0] <= now:
            yield from self._left_over(*first)
        for side, slices in enumerate(self._slices):
            for slice_ in sorted(s for s in slices if self._slice_over(side, s) <= now):
                self._remove(side, slice_)
                slices.discard(slice_)

    def _meet(
        self, side: int, key: bytes, value: Any, timestamp: int, stream_time: int
    ) -> list[tuple[Any, int]] | None:
        time, other = max(timestamp, 0), 1 - side
        if time + self._over_after[side] <= stream_time:
            return None
        encode = self._values[side].encode
        data: bytes = value if encode is None else encode(value)
        found = self._partners(other, key, time, stream_time)
        partners = sorted(found, key=lambda partner: partner[0])
        self._keep(side, key, time, data)
        if self._keeps_unpaired[side] and not partners:
            self._note(side, key, time, data)
        if self._keeps_unpaired[other]:
            for other_time in {other_time for other_time, _ in partners}:
                self._agenda.cancel(other_time + self._over_after[other], _SIDES[other] + key)
        return [self._pair(side, data, time, partner) for partner in partners]

    def _partners(
        self, other: int, key: bytes, time: int, stream_time: int
    ) -> Iterator[tuple[int, bytes]]:
        """Yield what the other side has within reach, earliest slice first."""
        back, ahead = self._interval.reach(1 - other)
        first = max(time - back, stream_time - self._over_after[other] + 1, 0)
        last = time + ahead
        for slice_ in range(first // self._slice_ms, last // self._slice_ms + 1):
            for piece, _ in pieces(self._session.get, other, slice_, key):
                for other_time, data in unpacked(piece):
                    if data is not None and first <= other_time <= last:
                        yield other_time, data

    def _pair(
        self, side: int, data: bytes, time: int, partner: tuple[int, bytes]
    ) -> tuple[Any, int]:
        """Return one result; each call of the function has values of its own."""
        other_time, other_data = partner
        left, right = (data, other_data) if side == _LEFT else (other_data, data)
        value = self._by(self._decoded(_LEFT, left), self._decoded(_RIGHT, right))
        return value, max(time, other_time)

    def _keep(self, side: int, key: bytes, time: int, data: bytes) -> None:
        slice_, get = time // self._slice_ms, self._session.get
        number, name = 0, _name(side, slice_, key)
        while (entry := get(name)) is not None and len(entry[0]) > PIECE_BYTES:
            number += 1
            name = _name(side, slice_, key, number)
        before: bytes = b"" if entry is None else entry[0]
        self._session.put(name, (before + packed(time, data), time))
        if slice_ not in self._slices[side]:
            self._slices[side].add(slice_)
            self.alarm.set(self._slice_over(side, slice_))

    def _note(self, side: int, key: bytes, time: int, data: bytes) -> None:
        due, noted = time + self._over_after[side], _SIDES[side] + key
        entry = self._agenda.entry(due, noted)
        if entry is None:
            self._agenda.add(due, noted, (packed(time, data), time))
        else:
            self._agenda.change(due, noted, (entry[0] + packed(time, data), time))
        self.alarm.set(due)

    def _left_over(self, due: int, noted: bytes) -> Iterator[Unpaired]:
        """Yield the records that were noted together; each is over when the next is asked for."""
        entry = self._agenda.entry(due, noted)
        if entry is None:
            self._agenda.take_first()
            return
        side, key = _SIDES.index(noted[:1]), noted[1:]
        waiting = list(unpacked(entry[0]))
        for at, (time, data) in enumerate(waiting):
            yield Unpaired(key, self._decoded(side, data), time, side == _LEFT)
            rest = b"".join(packed(*other) for other in waiting[at + 1 :])
            if rest:
                self._agenda.change(due, noted, (rest, time))
        self._agenda.take_first()

    def _remove(self, side: int, slice_: int) -> None:
        session = self._session
        for kind in (DATA, _MORE):
            first, last = (kind + _SIDES[side] + _TIME.pack(slice_ + n) for n in (0, 1))
            for name in [name for name, _ in session.scan(first, last)]:
                session.delete(name)

    def _slice_over(self, side: int, slice_: int) -> int:
        return (slice_ + 1) * self._slice_ms - 1 + self._over_after[side]

    def _stored_slices(self, side: int) -> Iterator[int]:
        """Yield the slices that have entries: from each one straight to the next one."""
        slice_, end = 0, DATA + bytes([_SIDES[side][0] + 1])
        while True:
            found = next(iter(self._session.scan(_name(side, slice_, b""), end)), None)
            if found is None:
                return
            slice_ = _TIME.unpack_from(found[0], 2)[0]
            yield slice_
            slice_ += 1

    def _decoded(self, side: int, data: bytes | None) -> Any:
        decode = self._values[side].decode
        return data if data is None or decode is None else decode(data)


def pieces(
    get: Callable[[bytes], Entry | None], side: int, slice_: int, key: bytes
) -> Iterator[Entry]:
    """Yield the entries with what came of a key from one side (0: left) within a slice of time."""
    number, entry = 0, get(_name(side, slice_, key))
    while entry is not None:
        yield entry
        number += 1
        entry = get(_name(side, slice_, key, number)) if len(entry[0]) > PIECE_BYTES else None


def _name(side: int, slice_: int, key: bytes, piece: int = 0) -> bytes:
    if piece == 0:
        return DATA + _SIDES[side] + _TIME.pack(slice_) + key
    return _MORE + _SIDES[side] + _TIME.pack(slice_) + _PIECE.pack(piece) + key
