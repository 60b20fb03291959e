"""Messages in what pgoutput writes (PostgreSQL's logical replication protocol, version 1).

B  Begin    1 byte, then the commit's place in the log, a time and a transaction id
M  Message  flags, place, prefix ending in a zero byte, length, content
C  Commit   flags, the commit's place, the place behind it, a time
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from eosframework.outbox.lanes import lane_of
from eosframework.outbox.ports import ID_HEADER
from eosframework.outbox.publishing import decode_headers
from eosframework.processing.ports import Output

PREFIX = b"eosframework.outbox"

_BEGIN = struct.Struct(">cQ")
_COMMIT = struct.Struct(">cBQQ")
_MESSAGE = struct.Struct(">cBQ")
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Begun:
    """A transaction begins whose commit stands at this place in the log."""

    at: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """One message as `emit` wrote it; `within` counts from 1 in its transaction."""

    id: str
    lane: int
    within: int
    output: Output


@dataclass(frozen=True, slots=True)
class Ended:
    """The transaction's commit ends at this place in the log."""

    at: int


def events(changes: Iterable[bytes]) -> Iterator[Begun | Emitted | Ended]:
    """Yield what the changes say of the outbox, in the order of the commits."""
    within = 0
    for change in changes:
        kind = change[:1]
        if kind == b"B":
            within = 0
            yield Begun(_BEGIN.unpack_from(change)[1])
        elif kind == b"M":
            content = _content(change)
            if content is not None:
                within += 1
                yield _emitted(content, within)
        elif kind == b"C":
            yield Ended(_COMMIT.unpack_from(change)[3])


def _content(change: bytes) -> bytes | None:
    """Return what was emitted; None: it is somebody else's."""
    at = change.index(b"\0", _MESSAGE.size)
    if change[_MESSAGE.size : at] != PREFIX:
        return None
    (length,) = _LENGTH.unpack_from(change, at + 1)
    start = at + 1 + _LENGTH.size
    return change[start : start + length]


def _emitted(content: bytes, within: int) -> Emitted:
    line, _, rest = content.partition(b"\n")
    facts = orjson.loads(line)
    key_length, value_length = facts["key"], facts["value"]
    key = None if key_length is None else rest[:key_length]
    value = None if value_length is None else rest[(key_length or 0) :]
    headers = [*decode_headers(facts["headers"]), (ID_HEADER, facts["id"])]
    output: Output = (facts["topic"], value, key, -1, None, None, facts["at"], headers)
    return Emitted(facts["id"], lane_of(key, within), within, output)
