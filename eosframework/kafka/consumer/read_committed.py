"""A consumer that never returns records of aborted transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Message

from eosframework.kafka.client.defaults import consumer_properties
from eosframework.kafka.consumer.headers import make_readable


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
        make_readable(messages)
        return messages

    def poll(self, timeout: float = -1) -> Message | None:
        """Return a message or None, as `confluent_kafka.Consumer` does; its headers can be read."""
        message = super().poll(timeout)
        if message is not None:
            make_readable([message])
        return message
