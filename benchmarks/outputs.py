"""Checks that a contestant did the work: every record once, its field doubled."""

from __future__ import annotations

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from benchmarks.inputs import DOUBLED, PARTITIONS, json_records
from benchmarks.processes import ProcessFailed


def require_doubled(bootstrap_servers: str, topic: str, records: int) -> None:
    """Read the committed output to its end and compare it with the input.

    Raises:
        ProcessFailed: the number of records or the sum of the doubled fields is not as expected.
    """
    count, total = _count_and_sum(bootstrap_servers, topic)
    expected = 2 * sum(orjson.loads(value)[DOUBLED] for _, value in json_records(records))
    if (count, total) != (records, expected):
        raise ProcessFailed(
            f"{topic} holds {count} records whose {DOUBLED} add up to {total}; "
            f"expected {records} and {expected}"
        )


def _count_and_sum(bootstrap_servers: str, topic: str) -> tuple[int, int]:
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
    count = total = 0
    try:
        while unread:
            for message in consumer.consume(5000, 10):
                error = message.error()
                if error is None:
                    count += 1
                    total += orjson.loads(message.value() or b"")[DOUBLED]
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    unread.discard(message.partition() or 0)
    finally:
        consumer.close()
    return count, total
