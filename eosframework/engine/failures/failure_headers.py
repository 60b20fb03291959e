"""Headers of dead letters, retried and replayed records, and the view of such a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eosframework.transactions.ports import Message

Headers = list[tuple[str, bytes | None]]

HEADER_EXCEPTION = "__streams.errors.exception"
"""The type and the text of the error. This and the next five headers are those of KIP-1034."""
HEADER_MESSAGE = "__streams.errors.message"
HEADER_STACKTRACE = "__streams.errors.stacktrace"
HEADER_TOPIC = "__streams.errors.topic"
HEADER_PARTITION = "__streams.errors.partition"
HEADER_OFFSET = "__streams.errors.offset"
HEADER_STEP = "__eos.errors.step"
HEADER_BATCH = "__eos.errors.batch"
"""The batch of a sink of Spark whose row failed."""
HEADER_FAILED = "__eos.errors.failed"
"""Time of the failure, in milliseconds since the epoch."""
HEADER_FIRST_FAILED = "__eos.errors.first_failed"
"""Time of the first failure, likewise."""
HEADER_ATTEMPTS = "__eos.errors.attempts"
"""Number of failed attempts so far."""
HEADER_DUE = "__eos.errors.due"
"""Time of the next attempt, in milliseconds since the epoch."""
HEADER_REPLAYED = "__eos.errors.replayed"
"""Place of the dead letter from which a record was replayed."""
HEADER_FORM = "__eos.errors.form"
"""Form of a dead letter that its topic does not take whole (`dead_letter_forms`)."""
HEADER_SIZE = "__eos.errors.size"
"""Size of the record's value in bytes, if the dead letter has another one."""
HEADER_DIGEST = "__eos.errors.sha256"
"""Digest of the record, likewise."""

OWN_HEADERS = frozenset(
    {
        HEADER_EXCEPTION,
        HEADER_MESSAGE,
        HEADER_STACKTRACE,
        HEADER_TOPIC,
        HEADER_PARTITION,
        HEADER_OFFSET,
        HEADER_STEP,
        HEADER_BATCH,
        HEADER_FAILED,
        HEADER_FIRST_FAILED,
        HEADER_ATTEMPTS,
        HEADER_DUE,
        HEADER_REPLAYED,
        HEADER_FORM,
        HEADER_SIZE,
        HEADER_DIGEST,
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


MOST_DIGITS = 20
"""A longer number was not written by this framework, whose numbers have 64 bits."""


class RetriedRecord:
    """A message of a retry or replay topic as its steps see it.

    Its headers are those of the original record; the headers added since are available as
    properties.
    """

    __slots__ = ("_message", "_said", "key", "offset", "partition", "timestamp", "topic", "value")

    def __init__(self, message: Message) -> None:
        self._message = message
        self._said = {name: value or b"" for name, value in message.headers() or ()}
        self.topic = message.topic
        self.partition = message.partition
        self.offset = message.offset
        self.key = message.key
        self.value = message.value
        self.timestamp = message.timestamp

    def headers(self) -> Headers | None:
        """The headers of the original record."""
        return as_it_came(self._message.headers() or ()) or None

    @property
    def origin(self) -> tuple[str, int, int]:
        """Topic, partition and offset of the original record."""
        said = self._said
        if HEADER_TOPIC not in said:
            return self.topic(), self.partition(), self.offset()
        return (
            said[HEADER_TOPIC].decode(errors="replace"),
            _number(said, HEADER_PARTITION),
            _number(said, HEADER_OFFSET),
        )

    @property
    def attempts(self) -> int:
        """Failed attempts since the record was first read, or replayed."""
        return _number(self._said, HEADER_ATTEMPTS)

    @property
    def first_failed_at(self) -> bytes | None:
        """Time of the first failure, as in its header."""
        return self._said.get(HEADER_FIRST_FAILED)

    @property
    def replayed(self) -> bytes | None:
        """Place of the dead letter that was replayed; None: it was not replayed."""
        return self._said.get(HEADER_REPLAYED)

    @property
    def due_ms(self) -> int:
        """Time of the next attempt, in milliseconds since the epoch."""
        return _number(self._said, HEADER_DUE)


def _number(said: Mapping[str, bytes], name: str) -> int:
    value = said.get(name, b"")
    return int(value) if value.isdigit() and len(value) < MOST_DIGITS else 0
