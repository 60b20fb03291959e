"""Stream-stream joins: a record joins the other stream's records within an interval of its time.

    0 + due (8) + side (1) + key          records without a match so far; left and outer joins only
    0 + due (8) + more (1) + piece (4) + key      further ones, where an entry is full
    1, 2, 3                               the buffered records of both sides (below)
    ff                                    the interval that the store was made for

The interval of a record has passed when stream time exceeds its end by more than the grace. From
then on the record has no matches: this depends on times alone, not on when the entry is removed. A
record whose interval has passed when it arrives is late.

Records that were written out of order keep their time of writing (`watermarks`). Two
records meet if the intervals of both were open at the later of their times of writing, in whatever
order they arrive.

Buffered records of stream-stream joins, by side, slice of time, and key.

    1 + side (1) + slice (8) + key                  the first records of a key in a slice
    3 + side (1) + slice (8) + width (8) + span (8) + piece (4) + key    further ones

An entry is written as one message, and brokers limit the size of messages, so an entry takes
records up to `_PIECE_BYTES`. If it is full, a record goes into the entry of its span, a shorter
time; if that is full, into a span of a sixteenth of its width, down to a millisecond:

    slice of 600 s, full | 65.5 s, full | 4.1 s, full | 256 ms, full | 16 ms | 1 ms

So a lookup reads few entries without a match, however many records of its key the slice has.
Records of one millisecond match together and take as many pieces as they need.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

from eosframework.engine.operators.entries import Entry, Written, packed
from eosframework.engine.operators.store_transaction import Limits, StoreTransaction
from eosframework.engine.operators.time_windows import WindowStarts
from eosframework.engine.operators.windows import DATA, MARK_KEY, Agenda, Alarm, TimedState
from eosframework.errors import KeyTooHot, RunError, raised_by_functions
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import StreamJoin
from eosframework.topology.spec.keyed_spec import windows_in_words

_PIECE_BYTES = 16_384
"""A longer entry takes no further record."""

_SPAN_BYTES = 2048
"""The same limit for spans of more than a millisecond: a lookup reads such an entry of each
width whole, even for few of its records."""

_SIDES = (b"l", b"r")
"""The left side and the right one."""

_PARTS = 16
"""The number of parts into which a full span is divided."""

_KEPT_PIECES = 16
"""Full entries that are kept decoded: those that a lookup reads again for each record of a key."""

_TIME = struct.Struct(">Q")
_PIECE = struct.Struct(">I")
_SPAN = struct.Struct(">QQI")
_SPANS = b"\x03"

Get = Callable[[bytes], Entry | None]


class WaitingRecords:
    """The buffered records of both sides.

    Args:
        store: the transaction of the store, with values of bytes.
        slice_ms: the length of a slice.
    """

    def __init__(self, store: StoreTransaction, slice_ms: int) -> None:
        self._store = store
        self._slice_ms = slice_ms
        self._last = _LastPiece()
        self._full = lru_cache(_KEPT_PIECES)(self._decoded)

    def keep(self, side: int, key: bytes, time: int, data: bytes, written: int) -> None:
        """Add a record of one side (0: left), with its time of writing."""
        name, entry = self._place(side, key, time)
        before: bytes = b"" if entry is None else entry[0]
        self._store.put(name, (before + packed(time, data, written), time))

    def between(
        self, side: int, key: bytes, first: int, last: int
    ) -> Iterator[tuple[int, bytes, int]]:
        """Yield the records of a key with `first <= time <= last`; equal times in arrival order.

        Each is its time, its value and its time of writing.
        """
        slice_ms, get = self._slice_ms, self._store.get
        for slice_ in range(first // slice_ms, last // slice_ms + 1):
            for piece in pieces(get, side, slice_, key, slice_ms, (first, last)):
                for time, data, written in self._records(piece, first, last):
                    if data is not None and first <= time <= last:
                        yield time, data, written

    def removing(self, side: int, first: int, last: int) -> Iterator[bytes]:
        """Remove slices from `first` to `last`, both inclusive; yield each removed entry's name."""
        for kind in (DATA, _SPANS):
            start, end = (kind + _SIDES[side] + _TIME.pack(slice_) for slice_ in (first, last + 1))
            for name, _ in self._store.scan(start, end):
                self._store.delete(name)
                yield name

    def slices(self, side: int) -> Iterator[int]:
        """Yield the slices that have records, with one seek for each."""
        slice_, end = 0, DATA + bytes([_SIDES[side][0] + 1])
        while True:
            found = next(iter(self._store.scan(_name(side, slice_, b""), end)), None)
            if found is None:
                return
            slice_ = self._store.form.time_in(_TIME, found[0], 2)
            yield slice_
            slice_ += 1

    def _records(self, piece: bytes, first: int, last: int) -> Sequence[Written]:
        """Return the records of an entry; none of a full one whose times all lie outside."""
        if not _SPAN_BYTES < len(piece) <= 2 * _PIECE_BYTES:
            return self._store.form.written(piece)
        earliest, latest, records = self._full(piece)
        return records if earliest <= last and latest >= first else ()

    def _decoded(self, piece: bytes) -> tuple[int, int, Sequence[Written]]:
        """Return the earliest and latest time of an entry's records, and the records."""
        records = self._store.form.written(piece)
        times = [time for time, _, _ in records]
        return min(times), max(times), records

    def _place(self, side: int, key: bytes, time: int) -> tuple[bytes, Entry | None]:
        """Return the name of the first entry with room for a record, and its content."""
        get, slice_ = self._store.get, time // self._slice_ms
        name = _name(side, slice_, key)
        entry = get(name)
        if not _is_full(entry):
            return name, entry
        width = _widest(self._slice_ms)
        while width > 1:
            name = _span_name(side, slice_, key, width, time // width)
            entry = get(name)
            if not _is_full(entry, _SPAN_BYTES):
                return name, entry
            width //= _PARTS
        named = partial(_span_name, side, slice_, key, 1, time)
        number, entry = self._last.find((side, key, time), lambda piece: get(named(piece)))
        return named(number), entry


def pieces(
    get: Get, side: int, slice_: int, key: bytes, slice_ms: int, times: tuple[int, int]
) -> Iterator[bytes]:
    """Yield the entries with the records of a key from one side within a slice.

    Args:
        get: reads an entry.
        side: 0 is the left one.
        slice_: its number.
        key: the encoded key.
        slice_ms: the length of a slice.
        times: the first and the last time wanted; records of other times may be included.
    """
    entry = get(_name(side, slice_, key))
    if entry is None:
        return
    yield entry[0]
    if not _is_full(entry):
        return
    start = slice_ * slice_ms
    first, last = max(times[0], start), min(times[1], start + slice_ms - 1)
    yield from _of_spans(get, (side, slice_, key), _widest(slice_ms), first, last)


class _LastPiece:
    """Finds the last of several pieces, starting at the last result."""

    def __init__(self) -> None:
        self._of: object = None
        self._number = 0

    def find(self, of: object, get: Callable[[int], Entry | None]) -> tuple[int, Entry | None]:
        """Return number and content of the only piece with room: the last one, or a new one.

        Args:
            of: identifies the pieces.
            get: reads a piece.
        """
        near = self._number if of == self._of else 0
        # The piece may have been rolled back with its transaction.
        if near and get(near) is None:
            near = 0
        found = _last_from(near, get)
        self._of, self._number = of, found[0]
        return found


def _last_from(full: int, get: Callable[[int], Entry | None]) -> tuple[int, Entry | None]:
    """Find the last piece from a full one, with a logarithmic number of reads."""
    entry = get(full)
    if not _is_full(entry):
        return full, entry
    step = 1
    while _is_full(get(full + step)):
        full += step
        step *= 2
    beyond = full + step
    while beyond - full > 1:
        middle = (full + beyond) // 2
        if _is_full(get(middle)):
            full = middle
        else:
            beyond = middle
    return beyond, get(beyond)


def _is_full(entry: Entry | None, limit_bytes: int | None = None) -> bool:
    """Return whether an entry exists and takes no further record.

    Args:
        entry: the content read.
        limit_bytes: None: the limit of pieces.
    """
    limit_bytes = _PIECE_BYTES if limit_bytes is None else limit_bytes
    return entry is not None and len(entry[0]) > limit_bytes


def _of_spans(
    get: Get, of: tuple[int, int, bytes], width: int, first: int, last: int
) -> Iterator[bytes]:
    for span in range(first // width, last // width + 1):
        named = partial(_span_name, *of, width, span)
        if width == 1:
            yield from _chain(get, named)
            continue
        entry = get(named())
        if entry is None:
            continue
        yield entry[0]
        if _is_full(entry, _SPAN_BYTES):
            start = span * width
            end = start + width - 1
            yield from _of_spans(get, of, width // _PARTS, max(first, start), min(last, end))


def _chain(get: Get, named: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield pieces up to the first that is not full."""
    number, entry = 0, get(named(0))
    while entry is not None:
        yield entry[0]
        number += 1
        entry = get(named(number)) if _is_full(entry) else None


def _widest(slice_ms: int) -> int:
    """Return the length of a slice's longest spans; each length is a multiple of the next."""
    width = 1
    while width * _PARTS < slice_ms:
        width *= _PARTS
    return width


def _name(side: int, slice_: int, key: bytes) -> bytes:
    return DATA + _SIDES[side] + _TIME.pack(slice_) + key


def _span_name(side: int, slice_: int, key: bytes, width: int, span: int, piece: int = 0) -> bytes:
    return _SPANS + _SIDES[side] + _TIME.pack(slice_) + _SPAN.pack(width, span, piece) + key


_LEFT, _RIGHT = 0, 1
_MORE = (b"m", b"s")
"""Order them after their side, so that the entry written first comes due first."""

_Found = list[tuple[int, bytes, int]]
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
        self._last_note = _LastPiece()
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

    def _partners(self, other: int, key: bytes, time: int, now: int, own_bytes: int) -> _Found:
        """Return the matching records of the other side; those of one time in arrival order."""
        back, ahead = self._interval.reach(1 - other)
        first = max(time - back, now - self._over_after[other] + 1, 0)
        over = time + self._over_after[1 - other]
        found: _Found = []
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
        if not is_more and noted[:1] not in _SIDES:
            raise self._store.form.held.damaged(noted, ValueError("a note of neither side"))
        side = (_MORE if is_more else _SIDES).index(noted[:1])
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
        return _SIDES[side] + key
    return _MORE[side] + _PIECE.pack(piece) + key
