"""Encoding of values with their times, one after the other in the bytes of one entry.

8 bytes   time in milliseconds since the epoch, big-endian, signed
4 bytes   length of the value, or `ABSENT` for a row that was deleted at this time
rest      the value, by its serde
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

ABSENT = 0xFFFFFFFF

_HEAD = struct.Struct(">qI")

Timed = tuple[int, bytes | None]
"""A time in milliseconds and a value; None: deleted."""


def packed(time: int, value: bytes | None) -> bytes:
    """Return one value with its time."""
    if value is None:
        return _HEAD.pack(time, ABSENT)
    return _HEAD.pack(time, len(value)) + value


def packed_bytes(value: bytes | None) -> int:
    """Return the length of `packed` for a value."""
    return _HEAD.size + (0 if value is None else len(value))


def packed_all(values: Iterable[Timed]) -> bytes:
    """Return the concatenation of several packed values."""
    return b"".join([packed(time, value) for time, value in values])


def unpacked(data: bytes) -> Iterator[Timed]:
    """Yield the values in their order."""
    at, end = 0, len(data)
    while at < end:
        time, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if length == ABSENT:
            yield time, None
        else:
            yield time, data[at : at + length]
            at += length
