"""The time of writing of a record, in a header of repartition topics (ADR 20).

A record's time of writing, L, is the stream time of its first writer when that ran it; it is at
least the record's event time. Whether a record is late, and what is still open to it, follows from
L, so it does not depend on how fast the tasks are that write a repartition topic. Only a record out
of order has the header; before a reorder step (`operators/reordering`) each record has it, with its
upstream task. It stays on the record through further repartition topics; the generated code removes
it where it reads the record.

    8 bytes   the time of writing in milliseconds since the epoch, big-endian
    4 bytes   only before a reorder step: the partition number of the upstream task
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import cast

HEADER_WRITTEN = "__eos.time"

_TIME = struct.Struct(">q")
_TIME_AND_WRITER = struct.Struct(">qI")

_Headers = list[tuple[str, bytes | None]]


def with_written(headers: Iterable[tuple[str, bytes | None]] | None, written: int) -> _Headers:
    """Return headers with a time of writing, in milliseconds since the epoch."""
    return [*(headers or ()), (HEADER_WRITTEN, _TIME.pack(written))]


def with_writer(
    headers: Iterable[tuple[str, bytes | None]] | None, written: int, writer: int
) -> _Headers:
    """Return headers with a time of writing and the partition number of the upstream task."""
    return [*(headers or ()), (HEADER_WRITTEN, _TIME_AND_WRITER.pack(written, writer))]


def writer_in(headers: _Headers | None) -> int:
    """Return the partition number of the upstream task that wrote a record; 0: unknown."""
    for name, value in headers or ():
        if name == HEADER_WRITTEN and value is not None and len(value) == _TIME_AND_WRITER.size:
            return _TIME_AND_WRITER.unpack(value)[1]
    return 0


def take_written(headers: _Headers, timestamp: int) -> tuple[_Headers | None, int]:
    """Return headers without the time of writing, and that time.

    Args:
        headers: of a record in a repartition topic.
        timestamp: its event time in milliseconds: the time of writing of a record in order.
    """
    written = timestamp
    for name, value in headers:
        if name == HEADER_WRITTEN:
            written = max(written, _time_in(value))
    left = [header for header in headers if header[0] != HEADER_WRITTEN]
    return left or None, written


def written_time(headers: object, timestamp: int) -> int:
    """Return a record's time of writing; its headers are those of a message, or None."""
    return timestamp if not headers else take_written(cast("_Headers", headers), timestamp)[1]


def _time_in(value: bytes | None) -> int:
    if value is None or len(value) not in (_TIME.size, _TIME_AND_WRITER.size):
        return 0
    return _TIME.unpack_from(value)[0]
