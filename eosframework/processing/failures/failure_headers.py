"""Headers of dead letters, retried records and replayed records."""

from __future__ import annotations

from collections.abc import Iterable

Headers = list[tuple[str, bytes | None]]

HEADER_TOPIC = "eos.topic"
HEADER_PARTITION = "eos.partition"
HEADER_OFFSET = "eos.offset"
HEADER_ERROR = "eos.error"
HEADER_STEP = "eos.step"
HEADER_FAILED = "eos.failed"
"""Time of the failure, in milliseconds since the epoch."""
HEADER_FIRST_FAILED = "eos.first_failed"
"""Time of the first failure, likewise."""
HEADER_ATTEMPTS = "eos.attempts"
"""Number of failed attempts so far."""
HEADER_DUE = "eos.due"
"""Time of the next attempt, in milliseconds since the epoch."""
HEADER_REPLAYED = "eos.replayed"
"""Place of the dead letter from which a record was replayed."""

OWN_HEADERS = frozenset(
    {
        HEADER_TOPIC,
        HEADER_PARTITION,
        HEADER_OFFSET,
        HEADER_ERROR,
        HEADER_STEP,
        HEADER_FAILED,
        HEADER_FIRST_FAILED,
        HEADER_ATTEMPTS,
        HEADER_DUE,
        HEADER_REPLAYED,
    }
)
"""Headers that the framework adds to a record that failed."""


def as_it_came(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return the headers that a record had before it failed.

    A record may have come with headers of an earlier failure elsewhere, so only the last header of
    each name is removed.
    """
    left, kept = set(OWN_HEADERS), Headers()
    for name, value in reversed(list(headers)):
        if name in left:
            left.discard(name)
        else:
            kept.append((name, value))
    return kept[::-1]
