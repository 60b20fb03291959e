"""Checks that a contestant did the work: every record once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "verifier",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
        }
    )
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
