"""A consumer that never returns records of aborted transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from operator import length_hint
from typing import Any

from confluent_kafka import Consumer, Message

from eosframework.kafka.client.defaults import consumer_properties

HEADER_UNREADABLE = "__eos.unreadable_headers"
"""The only header of a record whose own headers could not be read."""


class ReadCommittedConsumer(Consumer):
    """A `confluent_kafka.Consumer` with `isolation.level=read_committed` and no auto-commit.

    Code written for confluent_kafka runs on it; `consume(n, timeout)` reads batches, and keys,
    values, headers and timestamps arrive unchanged. Its defaults differ where librdkafka's own
    starve or surprise: a full queue is refilled after 5 ms, prefetching is bounded to 16 MB, and a
    missing committed offset is an error instead of the end of the log (`auto.offset.reset`).

    Args:
        config: librdkafka properties, as `confluent_kafka.Consumer` takes them.
        properties: more of them, as keywords.

    Raises:
        ConfigurationError: names the property that would break the guarantee.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **properties: Any) -> None:
        super().__init__(consumer_properties({**(config or {}), **properties}))

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return messages, as `confluent_kafka.Consumer` does; all their headers can be read."""
        messages = super().consume(num_messages, timeout)
        _make_readable(messages)
        return messages

    def poll(self, timeout: float = -1) -> Message | None:
        """Return a message or None, as `confluent_kafka.Consumer` does; its headers can be read."""
        message = super().poll(timeout)
        if message is not None:
            _make_readable([message])
        return message


def _make_readable(messages: Sequence[Message]) -> None:
    """Read the headers of messages, and replace those that cannot be read.

    For a header name that is not UTF-8, `Message.headers()` raises a SystemError and keeps a
    half-made list; the next call reads that list and ends the process by SIGSEGV (2.16). So the
    headers of every record are read here first, once per batch. The record is delivered without its
    headers, because their names cannot be read.
    """
    waiting = iter(messages)
    while True:
        try:
            deque(map(Message.headers, waiting), maxlen=0)
            return
        except SystemError:
            messages[-length_hint(waiting) - 1].set_headers([(HEADER_UNREADABLE, b"")])
