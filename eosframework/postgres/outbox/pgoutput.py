"""Parser of messages in pgoutput (PostgreSQL's logical replication protocol, version 1).

B  Begin    1 byte, then the commit's place in the log, a time and a transaction id
M  Message  flags, place, prefix ending in a zero byte, length, content
C  Commit   flags, the commit's place, the place after it, a time
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

import orjson

from eosframework.outbox.outbox_ports import ID_HEADER
from eosframework.outbox.publication import checked, decode_headers
from eosframework.outbox.sharding import lane_of
from eosframework.processing.ports import Output
from eosframework.records import LATEST_MS

PREFIX = b"eosframework.outbox"

_BEGIN = struct.Struct(">cQ")
_COMMIT = struct.Struct(">cBQQ")
_MESSAGE = struct.Struct(">cBQ")
_LENGTH = struct.Struct(">I")
_TRANSACTIONAL = 1
"""The flag of a message that is part of a transaction; `emit` writes no other. A message without it
has its own place in the log, between transactions."""


NOT_EMITTED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""Exceptions of parsing an entry that `emit` did not write."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The begin of a transaction, with the place of its commit in the log."""

    at: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """One message as `emit` wrote it; `within` counts from 1 in its transaction.

    Args:
        size: in bytes, without Kafka's overhead.
    """

    id: str
    lane: int
    within: int
    size: int
    output: Output


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry under the outbox's name that `emit` did not write.

    Args:
        within: as of a message; 0: it belongs to no transaction.
        at: its own place in the log.
    """

    within: int
    at: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a transaction, with the place after its commit in the log."""

    at: int


Event = Begun | Emitted | Unreadable | Ended


def events(changes: Iterable[bytes]) -> Iterator[Event]:
    """Yield the outbox's events among the changes, in commit order."""
    within = 0
    for change in changes:
        kind = change[:1]
        if kind == b"B":
            within = 0
            yield Begun(_BEGIN.unpack_from(change)[1])
        elif kind == b"M":
            content = _content(change)
            if content is None:
                continue
            _, flags, at = _MESSAGE.unpack_from(change)
            if not flags & _TRANSACTIONAL:
                yield Unreadable(0, at)
                continue
            within += 1
            try:
                yield _emitted(content, within)
            except NOT_EMITTED:
                yield Unreadable(within, at)
        elif kind == b"C":
            yield Ended(_COMMIT.unpack_from(change)[3])


def _content(change: bytes) -> bytes | None:
    """Return the message's content; None: it has another prefix."""
    at = change.index(b"\0", _MESSAGE.size)
    if change[_MESSAGE.size : at] != PREFIX:
        return None
    (length,) = _LENGTH.unpack_from(change, at + 1)
    start = at + 1 + _LENGTH.size
    return change[start : start + length]


def _emitted(content: bytes, within: int) -> Emitted:
    """Parse a message.

    Raises:
        NOT_EMITTED: `emit` did not write it.
    """
    line, _, rest = content.partition(b"\n")
    facts = orjson.loads(line)
    id_, topic, at = str(UUID(facts["id"])), facts["topic"], facts["at"]
    key_length, value_length = facts["key"], facts["value"]
    split = key_length or 0
    lengths_fit = (
        (key_length is None or key_length.__class__ is int)
        and (value_length is None or value_length.__class__ is int)
        and 0 <= split <= len(rest) == split + (value_length or 0)
    )
    times_fit = at.__class__ is int and 0 <= at <= LATEST_MS
    if topic.__class__ is not str or not lengths_fit or not times_fit:
        raise ValueError("the facts of a message do not fit")
    key = None if key_length is None else rest[:split]
    value = None if value_length is None else rest[split:]
    headers = [*checked(decode_headers(facts["headers"])), (ID_HEADER, id_)]
    output: Output = (topic, value, key, -1, None, None, at, headers)
    return Emitted(id_, lane_of(key, within), within, len(content), output)
