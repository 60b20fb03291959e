"""Parts of a consumed message, for which confluent_kafka's annotations allow None."""

from __future__ import annotations

from confluent_kafka import Message


def position_of(message: Message) -> tuple[str, int, int]:
    """Return topic, partition and offset of a message that lies in a log."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def headers_of(message: Message) -> dict[str, bytes]:
    """Return those headers that have a value."""
    headers = dict(message.headers() or ())
    return {name: value for name, value in headers.items() if isinstance(value, bytes)}
