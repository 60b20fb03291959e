"""Stream-stream joins: a record joins the other stream's records within an interval of its time.

    0 + due (8) + side (1) + key          records without a match so far; left and outer joins only
    0 + due (8) + more (1) + piece (4) + key      further ones, where an entry is full
    1, 2, 3                               the buffered records of both sides (`waiting_records`)
    ff                                    the interval that the store was made for

The interval of a record has passed when stream time exceeds its end by more than the grace. From
then on the record has no matches: this depends on times alone, not on when the entry is removed. A
record whose interval has passed when it arrives is late.

Records that were written out of order keep their time of writing (`written_time`). Two records meet
if the intervals of both were open at the later of their times of writing, in whatever order they
arrive.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from eosframework.errors import KeyTooHot, RunError, raised_by_functions
from eosframework.operators.entries import Written, packed
from eosframework.operators.joins.waiting_records import SIDES, LastPiece, WaitingRecords
from eosframework.operators.limits import Limits
from eosframework.operators.store_transaction import StoreTransaction
from eosframework.operators.windows.agenda import Agenda
from eosframework.operators.windows.closing import Alarm, TimedState
from eosframework.operators.windows.window_entries import MARK_KEY
from eosframework.operators.windows.window_slices import WindowStarts
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import StreamJoin
from eosframework.topology.spec.window_spec import windows_in_words

_PIECE = struct.Struct(">I")
_LEFT, _RIGHT = 0, 1
_MORE = (b"m", b"s")
"""Order them after their side, so that the entry written first comes due first."""

Found = list[tuple[int, bytes, int]]
"""Records of the other side: time, encoded value, and time of writing."""

Pair = tuple[Any, int, int]
"""A result, its timestamp, and its time of writing: the later ones of both records."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A join interval: right records from `before_ms` earlier to `after_ms` later than a left one.

    Args:
        grace_ms: stream time for which out-of-order records are accepted.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    @property
    def slice_ms(self) -> int:
        """The length of the slices in which records are kept; a lookup reads two or three."""
        return max(1, self.before_ms + self.after_ms, self.grace_ms // 16)

    def reach(self, side: int) -> tuple[int, int]:
        """Return how far before and after its own time a record of one side has matches."""
        if side == _LEFT:
            return self.before_ms, self.after_ms
        return self.after_ms, self.before_ms

    def over_after(self, side: int) -> int:
        """Return the time from a record's timestamp to the end of its interval and grace."""
        return self.reach(side)[1] + self.grace_ms + 1

    def __str__(self) -> str:
        return f"-{self.before_ms}/+{self.after_ms}/{self.grace_ms} ms"


def interval_of(join: StreamJoin) -> Interval:
    """Return the interval that a join declares."""
    return Interval(join.before_ms, join.after_ms, join.grace_ms)


class Unpaired(NamedTuple):
    """A record without a match."""

    key: bytes
    value: Any
    timestamp: int
    is_left: bool


class StreamJoinOperator(TimedState):
    """Joins the records of two streams.

    Args:
        store: the transaction of the store, with values of bytes.
        by: takes the left and the right value.
        interval: the join interval.
        values: serdes of both sides.
        keeps_unpaired: for each side, whether records without a match are emitted.
        alarm: set to the time at which an interval passes.
        limits: limits on the matches of a record.
    """

    def __init__(
        self,
        store: StoreTransaction,
        by: Callable[[Any, Any], Any],
        interval: Interval,
        values: tuple[Serde, Serde],
        keeps_unpaired: tuple[bool, bool],
        alarm: Alarm,
        limits: Limits,
    ) -> None:
        super().__init__(alarm)
        self._store = store
        self._by = by
        self._interval = interval
        self._limits = limits
        self._slice_ms = interval.slice_ms
        self._over_after = interval.over_after(_LEFT), interval.over_after(_RIGHT)
        self._values = values
        self._keeps_unpaired = keeps_unpaired
        self._agenda = Agenda(store)
        self._waiting = WaitingRecords(store, self._slice_ms)
        self._last_note = LastPiece()
        self._slices = WindowStarts(), WindowStarts()
        """The slices that have records, for each side."""

    def left(self, key: bytes, value: Any, timestamp: int, now: int) -> list[Pair] | None:
        """Take a record of the left side.

        Args:
            key: encoded.
            value: of the record.
            timestamp: its event time, in milliseconds.
            now: the greater of stream time and its time of writing.

        Returns:
            Results; None: the record is late.

        Raises:
            KeyTooHot: the record has too many matches.
        """
        return self._meet(_LEFT, key, value, timestamp, now)

    def right(self, key: bytes, value: Any, timestamp: int, now: int) -> list[Pair] | None:
        """Take a record of the right side; see `left`."""
        return self._meet(_RIGHT, key, value, timestamp, now)

    def begin(self) -> None:
        """Load the content of the store.

        Raises:
            RunError: the store was made for another interval.
        """
        mark, wanted = self._store.get(MARK_KEY), str(self._interval).encode()
        if mark is None:
            self._store.put(MARK_KEY, (wanted, 0))
        elif mark[0] != wanted:
            former = mark[0].decode(errors="replace")
            wants = windows_in_words(str(self._interval))
            raise RunError(
                f"store {self._store.form.store!r} holds records of {windows_in_words(former)}, "
                f"and the topology declares {wants}; give the join another store name: store: "
                f"NAME. Records that wait now stay without a match"
            )
        self._agenda.load()
        for side in (_LEFT, _RIGHT):
            self._slices[side].clear()
            for slice_ in self._waiting.slices(side):
                self._slices[side].add(slice_)
        self.alarm.set(self.due())

    def due(self) -> int:
        """Return the stream time at which the next interval passes, or earlier."""
        slices = [self._slice_over(side, s.first) for side, s in enumerate(self._slices) if s]
        return min([self._agenda.due(), *slices])

    def closing(self, now: int) -> Generator[Unpaired | None]:
        """Yield each record left without a match; it is removed when the next is requested."""
        while (first := self._agenda.first()) is not None and first[0] <= now:
            yield from self._left_over(*first)
        for side, slices in enumerate(self._slices):
            # The last slice whose last millisecond has passed its interval.
            over = (now + 1 - self._over_after[side]) // self._slice_ms - 1
            while ended := slices.up_to(over):
                for _ in self._waiting.removing(side, ended[0], ended[-1]):
                    yield None
                slices.discard(ended)

    def _meet(
        self, side: int, key: bytes, value: Any, timestamp: int, now: int
    ) -> list[Pair] | None:
        time, other = max(timestamp, 0), 1 - side
        if time + self._over_after[side] <= now:
            return None
        encode = self._values[side].encode
        data: bytes = value if encode is None else encode(value)
        partners = self._partners(other, key, time, now, len(data))
        partners.sort(key=lambda partner: partner[0])
        self._keep(side, key, time, data, now)
        if self._keeps_unpaired[side] and not partners:
            self._note(side, key, time, data, now)
        if self._keeps_unpaired[other]:
            for other_time in {other_time for other_time, _, _ in partners}:
                self._cancel(other, key, other_time, time + self._over_after[side])
        return [self._pair(side, data, time, now, partner) for partner in partners]

    def _partners(self, other: int, key: bytes, time: int, now: int, own_bytes: int) -> Found:
        """Return the matching records of the other side; those of one time in arrival order."""
        back, ahead = self._interval.reach(1 - other)
        first = max(time - back, now - self._over_after[other] + 1, 0)
        over = time + self._over_after[1 - other]
        found: Found = []
        records, size_bytes = self._limits.records, self._limits.size_bytes
        for partner in self._waiting.between(other, key, first, time + ahead):
            if partner[2] >= over:
                continue
            found.append(partner)
            size_bytes -= len(partner[1]) + own_bytes
            if len(found) > records or (size_bytes < 0 and len(found) > 1):
                raise KeyTooHot(
                    f"the record would match more than {self._limits.of_records} of the other "
                    f"stream; {self._limits.advice}, or make the interval of the join shorter"
                )
        return found

    def _pair(
        self, side: int, data: bytes, time: int, now: int, partner: tuple[int, bytes, int]
    ) -> Pair:
        """Return one result; each call of the function gets values of its own."""
        other_time, other_data, written = partner
        left, right = (data, other_data) if side == _LEFT else (other_data, data)
        times = (time, other_time) if side == _LEFT else (other_time, time)
        value = self._by(
            self._decoded(_LEFT, times[0], left), self._decoded(_RIGHT, times[1], right)
        )
        return value, max(time, other_time), max(now, written)

    def _keep(self, side: int, key: bytes, time: int, data: bytes, now: int) -> None:
        self._waiting.keep(side, key, time, data, now)
        slice_ = time // self._slice_ms
        if self._slices[side].add(slice_):
            self.alarm.set(self._slice_over(side, slice_))

    def _note(self, side: int, key: bytes, time: int, data: bytes, now: int) -> None:
        due, named = time + self._over_after[side], partial(_noted, side, key)
        of = side, key, due
        number, entry = self._last_note.find(
            of, lambda piece: self._agenda.entry(due, named(piece))
        )
        if entry is None:
            self._agenda.add(due, named(number), (packed(time, data, now), time))
        else:
            self._agenda.change(due, named(number), (entry[0] + packed(time, data, now), time))
        self.alarm.set(due)

    def _cancel(self, side: int, key: bytes, time: int, over: int) -> None:
        """Remove records of a time from those without a match: all written before `over`."""
        due, number, left = time + self._over_after[side], 0, list[Written]()
        while (entry := self._agenda.entry(due, name := _noted(side, key, number))) is not None:
            left += [one for one in self._store.form.written(entry[0]) if one[2] >= over]
            self._agenda.cancel(due, name)
            number += 1
        for noted_time, data, written in left:
            self._note(side, key, noted_time, data or b"", written)

    def _left_over(self, due: int, noted: bytes) -> Iterator[Unpaired]:
        """Yield the records of one entry; each counts as emitted when the next is requested."""
        entry = self._agenda.entry(due, noted)
        if entry is None:
            self._agenda.take_first()
            return
        is_more = noted[:1] in _MORE
        if not is_more and noted[:1] not in SIDES:
            raise self._store.form.held.damaged(noted, ValueError("a note of neither side"))
        side = (_MORE if is_more else SIDES).index(noted[:1])
        key, rest = noted[1 + _PIECE.size * is_more :], entry[0]
        is_through = False
        try:
            for time, data, written in self._store.form.written(entry[0]):
                yield Unpaired(key, self._decoded(side, time, data), time, side == _LEFT)
                rest = rest[len(packed(time, data, written)) :]
            is_through = True
        finally:
            # Once, and only on an early end: each change would stay in the journal.
            if not is_through:
                self._agenda.change(due, noted, (rest, entry[1]))
        self._agenda.take_first()

    def _slice_over(self, side: int, slice_: int) -> int:
        return (slice_ + 1) * self._slice_ms - 1 + self._over_after[side]

    def _decoded(self, side: int, time: int, data: bytes | None) -> Any:
        decode = self._values[side].decode
        if data is None or decode is None:
            return data
        try:
            return decode(data)
        except raised_by_functions() as error:
            raise self._store.form.held.damaged(packed(time, data), error) from error


def _noted(side: int, key: bytes, piece: int) -> bytes:
    if piece == 0:
        return SIDES[side] + key
    return _MORE[side] + _PIECE.pack(piece) + key
