"""A loop over confluent-kafka, as its example and librdkafka's manual recommend.

An error that can be retried is retried; one that requires an abort aborts, and the loop rewinds to
the committed offsets; any other ends the process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from benchmarks.faults.programs import stamp
from benchmarks.faults.programs.stamp import COMMIT_SECONDS, INPUT, OUTPUTS, TransientError


def main() -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": stamp.BOOTSTRAP_SERVERS,
            "group.id": stamp.GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": stamp.SESSION_TIMEOUT_MS,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": stamp.BOOTSTRAP_SERVERS,
            "transactional.id": stamp.TRANSACTIONAL_ID,
            "transaction.timeout.ms": stamp.TRANSACTION_TIMEOUT_MS,
        }
    )
    consumer.subscribe([INPUT])
    producer.init_transactions()
    while True:
        producer.begin_transaction()
        try:
            _fill(consumer, producer)
            _commit(consumer, producer)
        except TransientError as error:
            print(f"abort: {error}", flush=True)
            _abort(consumer, producer)
        except KafkaException as error:
            # A transaction that must be aborted refuses records with _STATE.
            refused = error.args[0].code() == KafkaError._STATE  # noqa: SLF001
            if not (refused or error.args[0].txn_requires_abort()):
                raise
            print(f"abort: {error}", flush=True)
            _abort(consumer, producer)


def _fill(consumer: Consumer, producer: Producer) -> None:
    """Transform what arrives within the commit interval."""
    until = time.monotonic() + COMMIT_SECONDS
    while (left := until - time.monotonic()) > 0:
        message = consumer.poll(left)
        producer.poll(0)
        if message is None or message.error():
            continue
        value = json.dumps(stamp.stamp(json.loads(message.value() or b""))).encode()
        for topic in OUTPUTS:
            producer.produce(topic, value, message.key())


def _commit(consumer: Consumer, producer: Producer) -> None:
    positions = consumer.position(consumer.assignment())
    read = [position for position in positions if position.offset >= 0]
    metadata: Any = consumer.consumer_group_metadata()
    if read:
        _retried(lambda: producer.send_offsets_to_transaction(read, metadata))
    _retried(producer.commit_transaction)


def _abort(consumer: Consumer, producer: Producer) -> None:
    _retried(producer.abort_transaction)
    for partition in consumer.committed(consumer.assignment(), timeout=60):
        start = partition.offset if partition.offset >= 0 else 0
        consumer.seek(TopicPartition(partition.topic, partition.partition, start))


def _retried(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


if __name__ == "__main__":
    main()
