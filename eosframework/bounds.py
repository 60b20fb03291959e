"""The bounds of the HTTP addresses and of the console: in bytes, in number and in time.

Clients choose what they send and how fast, so each of these is one number, and the largest one that
is accepted. docs/reference/bounds.md is made of this table.
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
READINGS_AT_ONCE = Bound(12, "readings", "readings of the console at a time", "the page says so")
SESSIONS = Bound(100, "sessions", "sessions of the console", "the oldest one is signed out")
WRONG_TOKENS = Bound(
    4,
    "answers",
    "answers to wrong tokens that wait for a second",
    "429, at once; the right token is always accepted",
)
JOBS = Bound(20, "jobs", "jobs that the console remembers", "the oldest one is forgotten")

TABLE = tuple(each for each in list(globals().values()) if isinstance(each, Bound))
"""All bounds, in the order of this module."""
