"""Buffered records of stream-stream joins, by side, slice of time, and key.

    1 + side (1) + slice (8) + key                  the first records of a key in a slice
    3 + side (1) + slice (8) + width (8) + span (8) + piece (4) + key    further ones

An entry is written as one message, and brokers limit the size of messages, so an entry takes
records up to `PIECE_BYTES`. If it is full, a record goes into the entry of its span, a shorter
time; if that is full, into a span of a sixteenth of its width, down to a millisecond:

    slice of 600 s, full | 65.5 s, full | 4.1 s, full | 256 ms, full | 16 ms | 1 ms

So a lookup reads few entries without a match, however many records of its key the slice has.
Records of one millisecond match together and take as many pieces as they need.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

from eosframework.operators.entries import Entry, Written, packed
from eosframework.operators.store_transaction import StoreTransaction
from eosframework.operators.windows.agenda import DATA

PIECE_BYTES = 16_384
"""A longer entry takes no further record."""

SPAN_BYTES = 2048
"""The same limit for spans of more than a millisecond: a lookup reads such an entry of each
width whole, even for few of its records."""

SIDES = (b"l", b"r")
"""The left side and the right one."""

_PARTS = 16
"""The number of parts into which a full span is divided."""

_KEPT_PIECES = 16
"""Full entries that are kept decoded: those that a lookup reads again for each record of a key."""

_TIME = struct.Struct(">Q")
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
        self._last = LastPiece()
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
            start, end = (kind + SIDES[side] + _TIME.pack(slice_) for slice_ in (first, last + 1))
            for name, _ in self._store.scan(start, end):
                self._store.delete(name)
                yield name

    def slices(self, side: int) -> Iterator[int]:
        """Yield the slices that have records, with one seek for each."""
        slice_, end = 0, DATA + bytes([SIDES[side][0] + 1])
        while True:
            found = next(iter(self._store.scan(_name(side, slice_, b""), end)), None)
            if found is None:
                return
            slice_ = self._store.form.time_in(_TIME, found[0], 2)
            yield slice_
            slice_ += 1

    def _records(self, piece: bytes, first: int, last: int) -> Sequence[Written]:
        """Return the records of an entry; none of a full one whose times all lie outside."""
        if not SPAN_BYTES < len(piece) <= 2 * PIECE_BYTES:
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
        if not is_full(entry):
            return name, entry
        width = _widest(self._slice_ms)
        while width > 1:
            name = _span_name(side, slice_, key, width, time // width)
            entry = get(name)
            if not is_full(entry, SPAN_BYTES):
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
    if not is_full(entry):
        return
    start = slice_ * slice_ms
    first, last = max(times[0], start), min(times[1], start + slice_ms - 1)
    yield from _of_spans(get, (side, slice_, key), _widest(slice_ms), first, last)


class LastPiece:
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
    if not is_full(entry):
        return full, entry
    step = 1
    while is_full(get(full + step)):
        full += step
        step *= 2
    beyond = full + step
    while beyond - full > 1:
        middle = (full + beyond) // 2
        if is_full(get(middle)):
            full = middle
        else:
            beyond = middle
    return beyond, get(beyond)


def is_full(entry: Entry | None, limit_bytes: int | None = None) -> bool:
    """Return whether an entry exists and takes no further record.

    Args:
        entry: the content read.
        limit_bytes: None: the limit of pieces.
    """
    limit_bytes = PIECE_BYTES if limit_bytes is None else limit_bytes
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
        if is_full(entry, SPAN_BYTES):
            start = span * width
            end = start + width - 1
            yield from _of_spans(get, of, width // _PARTS, max(first, start), min(last, end))


def _chain(get: Get, named: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield pieces up to the first that is not full."""
    number, entry = 0, get(named(0))
    while entry is not None:
        yield entry[0]
        number += 1
        entry = get(named(number)) if is_full(entry) else None


def _widest(slice_ms: int) -> int:
    """Return the length of a slice's longest spans; each length is a multiple of the next."""
    width = 1
    while width * _PARTS < slice_ms:
        width *= _PARTS
    return width


def _name(side: int, slice_: int, key: bytes) -> bytes:
    return DATA + SIDES[side] + _TIME.pack(slice_) + key


def _span_name(side: int, slice_: int, key: bytes, width: int, span: int, piece: int = 0) -> bytes:
    return _SPANS + SIDES[side] + _TIME.pack(slice_) + _SPAN.pack(width, span, piece) + key
