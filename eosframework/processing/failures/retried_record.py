"""The view of a retried or replayed record that its steps get."""

from __future__ import annotations

from collections.abc import Mapping

from eosframework.processing.failures.failure_headers import (
    HEADER_ATTEMPTS,
    HEADER_DUE,
    HEADER_FIRST_FAILED,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_TOPIC,
    Headers,
    as_it_came,
)
from eosframework.processing.ports import Message

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
