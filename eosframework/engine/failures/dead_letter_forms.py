"""Forms of a dead letter: a record that its dead-letter topic does not take goes in less space.

    whole    as it came
    gzip     the value is compressed
    place    the value is left out; it can be read at the record's place in its source
    bare     key, value and headers are left out

The first one that fits is written. A form other than whole is named in a header, and another one
has a digest of the record, with which a replay recognizes it in its source.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256

from eosframework.engine.failures.failure_headers import (
    HEADER_DIGEST,
    HEADER_FORM,
    HEADER_SIZE,
    Headers,
)

RESERVED_BYTES = 1024
"""Room for what a producer adds to a record: a receipt, the writer of a backfill, and lengths."""

HEADER_BYTES = 10
"""At most so many bytes state the lengths of a header."""


class Form(StrEnum):
    """The form of a dead letter."""

    WHOLE = "whole"
    GZIP = "gzip"
    PLACE = "place"
    BARE = "bare"


def fitted(
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    added: Headers,
    most_bytes: int | None,
) -> tuple[bytes | None, bytes | None, Headers]:
    """Return key, value and headers of the dead letter of a record.

    Args:
        key: of the record.
        value: of the record.
        headers: of the record.
        added: those that describe the failure.
        most_bytes: the largest record that the dead-letter topic takes; None: unknown.
    """
    whole = [*headers, *added]
    if most_bytes is None or _size(key, value, whole) <= most_bytes:
        return key, value, whole
    facts: Headers = [
        (HEADER_SIZE, str(len(value or b"")).encode()),
        (HEADER_DIGEST, digest(key, value, headers).encode()),
    ]
    if value and most_bytes:
        packed = gzip.compress(value, 1, mtime=0)
        named = [*whole, *_form(Form.GZIP), *facts]
        if _size(key, packed, named) <= most_bytes:
            return key, packed, named
    named = [*whole, *_form(Form.PLACE), *facts]
    if _size(key, None, named) <= most_bytes:
        return key, None, named
    return None, None, [*added, *_form(Form.BARE), *facts]


def unpacked(data: bytes, size: int) -> bytes | None:
    """Return a compressed value of a known size; None: it has another one, or is damaged."""
    reader = zlib.decompressobj(wbits=31)
    try:
        value = reader.decompress(data, size + 1)
    except zlib.error:
        return None
    return value if len(value) == size else None


def digest(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> str:
    """Return the SHA-256 of a record's key, value and headers, as hexadecimal digits."""
    found = sha256()
    parts = [key, value, *(part for name, data in headers for part in (_bytes_of(name), data))]
    for part in parts:
        found.update(b"-" if part is None else b"%d:" % len(part))
        found.update(part or b"")
    return found.hexdigest()


def _bytes_of(name: str) -> bytes:
    return name.encode(errors="backslashreplace")


def _form(form: Form) -> Headers:
    return [(HEADER_FORM, form.encode())]


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound of a record's size in a batch."""
    lengths = (len(_bytes_of(name)) + len(data or b"") + HEADER_BYTES for name, data in headers)
    return len(key or b"") + len(value or b"") + sum(lengths) + RESERVED_BYTES
