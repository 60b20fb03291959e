"""Encoding of windows in a store.

Windows with fixed starts have one entry each, under their start and the key. Sliding windows and
sessions, whose bounds depend on the key's records, share one entry per key:

8 bytes   start, signed
8 bytes   end, signed
8 bytes   timestamp in milliseconds since the epoch
1 byte    whether it was closed
4 bytes   length of the value
rest      the value, by the store's serde

One further entry, with version byte 0, names the windows that the store was made for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from eosframework.errors import raised_by_functions
from eosframework.operators.entries import Entry, EntryFormat

MARK_KEY = b"\xff"
"""Sorts after every key that begins with a time."""

START = struct.Struct(">Q")
"""The prefix of keys that begin with a time: milliseconds since the epoch."""

SPAN_BYTES = 250
"""Memory of a sliding or session window besides the bytes of its value."""

_HEAD = struct.Struct(">BQ")
_SPAN = struct.Struct(">qqQ?I")


@dataclass(frozen=True, slots=True)
class Mark:
    """The windows that a store was made for; its timestamp: up to when the clock closed them.

    Args:
        signature: the signature of the windows.
    """

    signature: str


class Span(NamedTuple):
    """A window of one key.

    Args:
        timestamp: the greatest timestamp of its records.
        closed: whether its final result was emitted.
        raw: the encoded value.
    """

    start: int
    end: int
    timestamp: int
    closed: bool
    raw: bytes


class WindowFormat(EntryFormat):
    """The format of windows with one entry each."""

    __slots__ = ()

    def encode(self, entry: Entry) -> bytes:
        """Return the bytes of an entry."""
        if type(entry[0]) is Mark:
            return _HEAD.pack(0, entry[1]) + entry[0].signature.encode()
        return EntryFormat.encode(self, entry)

    def read(self, data: bytes) -> Entry:
        """Return the entry; see `EntryFormat.read`."""
        if data[0] == 0:
            return Mark(data[_HEAD.size :].decode()), _HEAD.unpack_from(data)[1]
        return EntryFormat.read(self, data)


class SpansFormat(EntryFormat):
    """The format of windows that share an entry: its value is a tuple of `Span`."""

    __slots__ = ()

    @property
    def is_immutable(self) -> bool:
        """Always true: the values are bytes within a tuple."""
        return True

    def encode(self, entry: Entry) -> bytes:
        """Return the bytes of an entry."""
        value, timestamp = entry
        if type(value) is Mark:
            return _HEAD.pack(0, timestamp) + value.signature.encode()
        parts = [_HEAD.pack(self.version, timestamp)]
        for start, end, latest, closed, raw in value:
            parts += _SPAN.pack(start, end, latest, closed, len(raw)), raw
        return b"".join(parts)

    def read(self, data: bytes) -> Entry:
        """Return the entry; values of an older version are converted to the current one."""
        version, timestamp = _HEAD.unpack_from(data)
        if version == 0:
            return Mark(data[_HEAD.size :].decode()), timestamp
        spans: list[Span] = []
        place = _HEAD.size
        while place < len(data):
            start, end, latest, closed, length = _SPAN.unpack_from(data, place)
            place += _SPAN.size
            if length > len(data) - place:
                raise struct.error(f"a window of {length} bytes is cut after {len(data) - place}")
            raw = data[place : place + length]
            if version != self.version:
                raw = self.encode_value(self.decode_value(raw, version))
            spans.append(Span(start, end, latest, closed, raw))
            place += length
        return tuple(spans), timestamp

    def value_of(self, span: Span) -> Any:
        """Return the value of a window.

        Raises:
            EntryDamaged: it cannot be decoded.
        """
        try:
            return self.decode_value(span.raw, self.version)
        except raised_by_functions() as error:
            start, end, latest, closed, raw = span
            part = _SPAN.pack(start, end, latest, closed, len(raw)) + raw
            raise self.held.damaged(part, error) from error

    def size(self, value: Any) -> int:
        """Return the approximate memory of the windows of a key, in bytes."""
        if type(value) is Mark or not value:
            return 0
        # Called with every change, so the first window's size is taken for all.
        return len(value) * (SPAN_BYTES + len(value[0].raw))

    def encode_value(self, value: Any) -> bytes:
        """Return the bytes of one window's value."""
        encode = self.serde.encode
        return encode(value) if encode else value
