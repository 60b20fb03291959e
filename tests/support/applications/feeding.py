"""The producer with which tests write inputs whose order matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, Message, Producer


class Feeder(Producer):
    """A producer whose flush fails if a record was not written, for whatever reason.

    The number of records that flush leaves does not count those that were given up: a test would
    wait for records that nobody wrote. A callback of a record sees to that record alone.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._failed: list[str] = []
        super().__init__({**properties, "on_delivery": self._remember})

    def _remember(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}[{message.partition()}]: {error}")

    def flush(self, timeout: float = -1) -> int:
        """Wait until each record is written; return how many are not, when the time is over."""
        left = super().flush(timeout)
        assert not self._failed, f"{len(self._failed)} records were not written: {self._failed[:3]}"
        return left


def feeder(bootstrap_servers: str, **properties: Any) -> Feeder:
    """Return a producer that keeps the order of what it is given.

    Without idempotence a batch whose first sending failed, as right after a topic was made, comes
    after the next one.
    """
    return Feeder(
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
