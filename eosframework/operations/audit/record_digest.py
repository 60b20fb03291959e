"""Record identity: a digest of 16 bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, cast

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.processing.failures.dead_letter_forms import Form
from eosframework.processing.failures.dead_letter_forms import digest as record_digest
from eosframework.processing.failures.failure_headers import (
    HEADER_ATTEMPTS,
    HEADER_DIGEST,
    HEADER_EXCEPTION,
    HEADER_FAILED,
    HEADER_FIRST_FAILED,
    HEADER_FORM,
    HEADER_MESSAGE,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_STACKTRACE,
    HEADER_STEP,
    HEADER_TOPIC,
    Headers,
    as_it_came,
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
    failure, receipts, and the task of a backfill, which functions do not produce. The form of a
    dead letter, which depends on the size of its topic's records, makes no difference.

    Args:
        topic: the record's topic.
        key: encoded.
        value: encoded.
        timestamp: milliseconds since the epoch.
        headers: in the form of a producer or a consumer; None equals no headers.
    """
    if headers and _is_dead_letter(pairs := _pairs(headers)):
        key, value, headers = None, _record_of(key, value, pairs), _place_of(pairs)
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
    for name, value in _pairs(headers):
        if name in _NOT_COUNTED:
            continue
        encoded = name.encode()
        yield _HEADER_LENGTHS.pack(len(encoded), _ABSENT if value is None else len(value))
        yield encoded + (value or b"")


def _pairs(headers: Any) -> Headers:
    pairs: Iterable[tuple[str, Any]] = headers
    if isinstance(headers, Mapping):
        pairs = cast("Mapping[str, Any]", headers).items()
    return [(n, value.encode() if isinstance(value, str) else value) for n, value in pairs]


def _is_dead_letter(pairs: Headers) -> bool:
    return any(name == HEADER_STEP for name, _ in pairs)


def _record_of(key: bytes | None, value: bytes | None, pairs: Headers) -> bytes:
    """Return the digest of the record of a dead letter."""
    said = dict(pairs)
    if said.get(HEADER_FORM) in _REDUCED:
        return said.get(HEADER_DIGEST) or b""
    kept = [pair for pair in as_it_came(pairs) if pair[0] not in (HEADER_RECEIPT, WRITER_HEADER)]
    return record_digest(key, value, kept).encode()


def _place_of(pairs: Headers) -> Headers:
    """Return the headers of a dead letter that say which record failed where."""
    said = dict(pairs)
    names = (
        HEADER_TOPIC,
        HEADER_PARTITION,
        HEADER_OFFSET,
        HEADER_STEP,
        HEADER_ATTEMPTS,
        HEADER_FIRST_FAILED,
        HEADER_REPLAYED,
    )
    return [(name, said[name]) for name in names if name in said]


_REDUCED = frozenset(form.encode() for form in Form if form is not Form.WHOLE)
