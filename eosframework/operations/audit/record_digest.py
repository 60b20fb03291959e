"""Record identity: a digest of 16 bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, cast

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.processing.failures.failure_headers import (
    HEADER_EXCEPTION,
    HEADER_FAILED,
    HEADER_MESSAGE,
    HEADER_STACKTRACE,
)
from eosframework.processing.transaction.receipts import HEADER_RECEIPT

DIGEST_BYTES = 16

_ABSENT = -1
_NOT_COUNTED = (
    HEADER_EXCEPTION,
    HEADER_MESSAGE,
    HEADER_STACKTRACE,
    HEADER_FAILED,
    HEADER_RECEIPT,
    WRITER_HEADER,
)
_LENGTHS = struct.Struct("<iiiq")
_HEADER_LENGTHS = struct.Struct("<ii")


def digest_of(
    topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Any
) -> bytes:
    """Return the digest of a record; equal for records with equal parts.

    Left out are a dead letter's error text, which may contain an object's address, the time of its
    failure, receipts, and the task of a backfill, which functions do not produce.

    Args:
        topic: the record's topic.
        key: encoded.
        value: encoded.
        timestamp: milliseconds since the epoch.
        headers: in the form of a producer or a consumer; None equals no headers.
    """
    name = topic.encode()
    lengths = _LENGTHS.pack(
        len(name),
        _ABSENT if key is None else len(key),
        _ABSENT if value is None else len(value),
        timestamp,
    )
    content = lengths + name + (key or b"") + (value or b"")
    if headers:
        content += b"".join(_header_parts(headers))
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


def _header_parts(headers: Any) -> Iterable[bytes]:
    pairs: Iterable[tuple[str, Any]] = headers
    if isinstance(headers, Mapping):
        pairs = cast("Mapping[str, Any]", headers).items()
    for name, value in pairs:
        if name in _NOT_COUNTED:
            continue
        encoded = name.encode()
        content = value.encode() if isinstance(value, str) else cast("bytes | None", value)
        yield _HEADER_LENGTHS.pack(len(encoded), _ABSENT if content is None else len(content))
        yield encoded + (content or b"")
