"""Checks that a contestant did the work: every record once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from benchmarks.inputs import DOUBLED, PARTITIONS, json_records
from benchmarks.processes import ProcessFailed


def require_doubled(bootstrap_servers: str, topic: str, records: int) -> None:
    """Read the committed output to its end and compare it with the input.

    Raises:
        ProcessFailed: the number of records or the sum of the doubled fields is not as expected.
    """
    count = total = 0
    for message in committed(bootstrap_servers, topic):
        count += 1
        total += orjson.loads(message.value() or b"")[DOUBLED]
    expected = 2 * sum(orjson.loads(value)[DOUBLED] for _, value in json_records(records))
    if (count, total) != (records, expected):
        raise ProcessFailed(
            f"{topic} holds {count} records whose {DOUBLED} add up to {total}; "
            f"expected {records} and {expected}"
        )


def require_counted(
    bootstrap_servers: str, topic: str, inputs: Mapping[bytes, int], *, every_update: bool
) -> None:
    """Read the committed output to its end: the counts of each key rise to that of the input.

    Args:
        inputs: how many records each key has.
        every_update: whether each of them shows, none left out.

    Raises:
        ProcessFailed: a count is missing, repeated, or not that of the input.
    """
    last: dict[bytes, int] = {}
    for message in committed(bootstrap_servers, topic):
        key, count = message.key() or b"", int.from_bytes(message.value() or b"", "big")
        before = last.get(key, 0)
        if count != before + 1 if every_update else count <= before:
            raise ProcessFailed(f"{topic} has {count} behind {before} for {key!r}")
        last[key] = count
    if last != inputs:
        wrong = next(key for key in inputs if last.get(key) != inputs[key])
        raise ProcessFailed(
            f"{topic} ends with {last.get(wrong)} for {wrong!r}, expected {inputs[wrong]}"
        )


def committed(bootstrap_servers: str, topic: str) -> Iterator[Message]:
    """Yield the committed messages of all partitions, to where they end now."""
    consumer = _consumer(bootstrap_servers, {"enable.partition.eof": True})
    partitions = range(PARTITIONS)
    consumer.assign(
        [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
    )
    unread = set(partitions)
    try:
        while unread:
            for message in consumer.consume(5000, 0.1):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    unread.discard(message.partition() or 0)
    finally:
        consumer.close()


class FinalValues:
    """Looks at committed outputs until the last value of each key is the one that is expected.

    Args:
        topics: of the outputs.
        final: by topic and key, the value.
        value_of: the value in a message; None: its key has none.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        final: Mapping[tuple[str, bytes], int],
        value_of: Callable[[bytes], int],
    ) -> None:
        self._final = final
        self._value_of = value_of
        self._right = set[tuple[str, bytes]]()
        self._consumer = _consumer(bootstrap_servers, {})
        self._consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in {topic for topic, _ in final}
                for partition in range(PARTITIONS)
            ]
        )
        self.count = 0
        """Of the messages so far."""

    def look(self) -> bool:
        """Return whether each key has its value by the messages that are there now."""
        while messages := self._consumer.consume(10_000, 0):
            for message in messages:
                self._take(message)
        return len(self._right) == len(self._final)

    @property
    def missing(self) -> int:
        """Number of keys without their value."""
        return len(self._final) - len(self._right)

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            return
        self.count += 1
        place = message.topic() or "", message.key() or b""
        data = message.value()
        if data is not None and self._value_of(data) == self._final[place]:
            self._right.add(place)
        else:
            self._right.discard(place)


def _consumer(bootstrap_servers: str, more: Mapping[str, Any]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "verifier",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
            **more,
        }
    )
