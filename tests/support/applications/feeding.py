"""The producer with which tests write inputs whose order matters."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer


def feeder(bootstrap_servers: str, **properties: Any) -> Producer:
    """Return a producer that keeps the order of what it is given.

    Without idempotence a batch whose first sending failed, as right after a topic was made, comes
    after the next one.
    """
    return Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, **properties}
    )


def write_record(servers: str, topic: str, key: bytes, value: bytes | None) -> int:
    """Write a record to partition 0 as another program would, and return its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(
        topic, value, key, partition=0, on_delivery=lambda _, m: offsets.append(m.offset() or 0)
    )
    assert producer.flush(60) == 0
    return offsets[0]
