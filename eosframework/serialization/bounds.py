"""The bounds on what strangers make a process do: in bytes, depth, number and time.

Clients of the HTTP addresses choose what they send and how fast, and writers of topics which
records and schemas. Each bound is one number, the largest one that is accepted.
docs/reference/bounds.md is made of these tables; settings bound the rest.
"""

from __future__ import annotations

from typing import NamedTuple

KIB, MIB = 2**10, 2**20


class Bound(NamedTuple):
    """A bound.

    Args:
        value: largest value that is accepted.
        unit: bytes, seconds, or what is counted.
        of: what is bounded.
        beyond: the effect beyond the bound.
    """

    value: int
    unit: str
    of: str
    beyond: str


CONNECTIONS = Bound(
    64,
    "connections",
    "open connections of an address",
    "the one that has waited for its client the longest is closed, and the new one is accepted",
)
HEAD_BYTES = Bound(16 * KIB, "bytes", "a request's line and headers", "431")
BODY_BYTES = Bound(16 * KIB, "bytes", "a request's body", "413")
FIELDS = Bound(100, "fields", "a query or a form", "400")
RECEIVE_SECONDS = Bound(5, "seconds", "a request, to its last byte", "the connection is closed")
PAGE_SECONDS = Bound(
    10, "seconds", "a request to a worker or relay with its answer", "the connection is closed"
)
PAGES = Bound(
    8, "pages", "pages of a worker or relay at a time, apart from `/livez` and `/readyz`", "503"
)
PEER_SECONDS = Bound(
    3, "seconds", "the answer of another worker to a forwarded query", "503 with `Retry-After`"
)
FORWARDED = Bound(
    4, "queries", "queries that a worker forwards at a time", "503 with `Retry-After`"
)
STATE_ROWS = Bound(1000, "rows", "rows of an answer of `/state` (`limit`)", "400")
STATE_BYTES = Bound(
    4 * MIB,
    "bytes",
    "rows of an answer of `/state`, with one more row",
    "the answer ends with `more: true`",
)
UNSENT_BYTES = Bound(
    256 * KIB, "bytes", "the part of an answer that waits for its client", "the page waits"
)
SCAN_BYTES = Bound(
    MIB, "bytes", "the entries that `/state` reads from a store at once", "the rest is read later"
)
ASKED_BYTES = Bound(
    16 * MIB, "bytes", "the answer of a process to `--ask`", "it counts as not understood"
)
CONSOLE_SECONDS = Bound(
    30, "seconds", "a request to the console with its answer", "the connection is closed"
)
CONSOLE_PAGES = Bound(16, "pages", "pages of the console at a time", "503")
CONSOLE_ROWS = Bound(200, "rows", "rows on the console's page of a store", "the page says so")
CONSOLE_SCANS = Bound(
    2, "readings", "readings of stores by the console at a time", "the page says so"
)
CHANGELOG_BYTES = Bound(
    64 * MIB,
    "bytes",
    "entries of a changelog's partition that the console reads",
    "the page names `eosframework state scan`, which has no such bound",
)
READINGS = Bound(
    128, "readings", "readings that the console remembers", "the oldest are read again"
)
READINGS_BYTES = Bound(
    32 * MIB, "bytes", "readings that the console remembers", "the oldest are read again"
)
SERIES = Bound(
    2000,
    "series",
    "series of a process's metrics that the console remembers for an hour",
    "further ones are left out of alerts and charts",
)
READINGS_AT_ONCE = Bound(12, "readings", "readings of the console at a time", "the page says so")
SESSIONS = Bound(100, "sessions", "sessions of the console", "the oldest one is signed out")
WRONG_TOKENS = Bound(
    1,
    "answers",
    "answers to wrong tokens that wait for a second",
    "429, at once; the right token is always accepted",
)
JOBS = Bound(20, "jobs", "jobs that the console remembers", "the oldest one is forgotten")

HTTP = tuple(each for each in list(globals().values()) if isinstance(each, Bound))
"""The bounds of clients of `worker.http_address`, of `outbox.http_address` and of the console."""

_DEAD = "`on_error` of the source applies to the record"
_CHILD = "the value is decoded in a child process"

SCHEMA_BYTES = Bound(1_000_000, "bytes", "text of a schema of another writer", _DEAD)
SCHEMA_LEVELS = Bound(200, "levels", "brackets in the text of such a schema", _DEAD)
SCHEMA_REFERENCES = Bound(100, "schemas", "references of such a schema, and theirs", _DEAD)
SCHEMA_TYPES = Bound(
    10_000, "types", "an Avro schema with each named type written out where it is used", _DEAD
)
AVRO_LEVELS = Bound(500, "levels", "nested values that an Avro record may hold", _CHILD)
AVRO_VALUES = Bound(2_000_000, "values", "values that an Avro record may hold", _CHILD)
AVRO_DECIMAL_BYTES = Bound(16_384, "bytes", "an Avro record whose schema has decimals", _CHILD)
DECODING_SECONDS = Bound(2, "seconds of CPU time", "decoding in the child process", _DEAD)
DECODING_BYTES = Bound(2**30, "bytes", "memory of the child process", _DEAD)
DECODED_BYTES = Bound(2**25, "bytes", "value that the child process returns", _DEAD)
UNKNOWN_SCHEMA_SECONDS = Bound(
    10, "seconds", "for which an unknown schema is not asked for again", "the registry is asked"
)

FOREIGN = tuple(
    each for each in list(globals().values()) if isinstance(each, Bound) and each not in HTTP
)
"""The bounds of records and schemas of other writers."""
