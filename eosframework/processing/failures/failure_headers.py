"""What the headers of a record say that could not be processed."""

from __future__ import annotations

from collections.abc import Iterable

Headers = list[tuple[str, bytes | None]]

HEADER_EXCEPTION = "__streams.errors.exception"
"""The type of the error and its text. This and the next five are those of KIP-1034."""
HEADER_MESSAGE = "__streams.errors.message"
HEADER_STACKTRACE = "__streams.errors.stacktrace"
HEADER_TOPIC = "__streams.errors.topic"
HEADER_PARTITION = "__streams.errors.partition"
HEADER_OFFSET = "__streams.errors.offset"
HEADER_STEP = "__eos.errors.step"
HEADER_FAILED = "__eos.errors.failed"
"""When it failed, in milliseconds since the epoch."""
HEADER_FIRST_FAILED = "__eos.errors.first_failed"
"""When it failed the first time, likewise."""
HEADER_ATTEMPTS = "__eos.errors.attempts"
"""How often it had failed by then."""
HEADER_DUE = "__eos.errors.due"
"""Of a record that waits for its next attempt: when that is, in milliseconds since the epoch."""
HEADER_REPLAYED = "__eos.errors.replayed"
"""Of a record that is processed again: the place of the dead letter that it was."""

OWN_HEADERS = frozenset(
    {
        HEADER_EXCEPTION,
        HEADER_MESSAGE,
        HEADER_STACKTRACE,
        HEADER_TOPIC,
        HEADER_PARTITION,
        HEADER_OFFSET,
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
