"""What the headers of a record say that could not be processed."""

from __future__ import annotations

from collections.abc import Iterable

Headers = list[tuple[str, bytes | None]]

HEADER_TOPIC = "eos.topic"
HEADER_PARTITION = "eos.partition"
HEADER_OFFSET = "eos.offset"
HEADER_ERROR = "eos.error"
HEADER_STEP = "eos.step"
HEADER_FAILED = "eos.failed"
"""When it failed, in milliseconds since the epoch."""
HEADER_FIRST_FAILED = "eos.first_failed"
"""When it failed the first time, likewise."""
HEADER_ATTEMPTS = "eos.attempts"
"""How often it had failed by then."""
HEADER_DUE = "eos.due"
"""Of a record that waits for its next attempt: when that is, in milliseconds since the epoch."""
HEADER_REPLAYED = "eos.replayed"
"""Of a record that is processed again: the place of the dead letter that it was."""

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
"""Headers that no record came with: what failed got them."""


def as_it_came(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return the headers that a record had before it failed.

    What it came with may have failed elsewhere before; so of each name only the last goes.
    """
    left, kept = set(OWN_HEADERS), Headers()
    for name, value in reversed(list(headers)):
        if name in left:
            left.discard(name)
        else:
            kept.append((name, value))
    return kept[::-1]
