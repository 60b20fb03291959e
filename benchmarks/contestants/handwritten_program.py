"""Consume, double one field, produce, commit: nothing else, as fast as confluent_kafka goes.

It has no protection against stragglers, no error handling, no logging and no rebalances: it is
the ceiling that a framework is measured against.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS = 4
BATCH_RECORDS = 10_000


def main() -> None:
    bootstrap_servers = os.environ["BENCH_BOOTSTRAP_SERVERS"]
    source, target = os.environ["BENCH_INPUT"], os.environ["BENCH_OUTPUT"]
    application = os.environ["BENCH_APPLICATION"]
    commit_seconds = float(os.environ["BENCH_COMMIT_SECONDS"])
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": application,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 32 * 1024,
        }
    )
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"{application}-{partition}",
                "linger.ms": 100,
                "retry.backoff.ms": 10,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for partition in range(PARTITIONS)
    ]
    for producer in producers:
        producer.init_transactions()
    consumer.subscribe([source])
    signal.signal(signal.SIGTERM, _leave)
    gc.freeze()
    gc.disable()
    _loop(consumer, producers, source, target, commit_seconds)


def _loop(
    consumer: Consumer, producers: list[Producer], source: str, target: str, commit_seconds: float
) -> None:
    loads, dumps, consume = orjson.loads, orjson.dumps, consumer.consume
    produce = [producer.produce for producer in producers]
    clock = time.monotonic
    committers = ThreadPoolExecutor(PARTITIONS)
    open_: set[int] = set()
    commit_at = clock() + commit_seconds
    while True:
        messages = consume(BATCH_RECORDS, max(0.0, commit_at - clock()))
        for message in messages:
            partition = message.partition()
            if partition not in open_:
                producers[partition].begin_transaction()
                open_.add(partition)
            order = loads(message.value())
            order["amount"] *= 2
            produce[partition](
                target,
                dumps(order),
                message.key(),
                -1,
                None,
                None,
                message.timestamp()[1],
            )
        for partition in open_:
            producers[partition].poll(0)
        if clock() >= commit_at:
            _commit(consumer, producers, committers, source, open_)
            commit_at = clock() + commit_seconds


def _commit(
    consumer: Consumer,
    producers: list[Producer],
    committers: ThreadPoolExecutor,
    source: str,
    open_: set[int],
) -> None:
    metadata: Any = consumer.consumer_group_metadata()

    def commit(partition: int) -> None:
        positions = consumer.position([TopicPartition(source, partition)])
        producers[partition].send_offsets_to_transaction(positions, metadata)
        producers[partition].commit_transaction()

    for _ in committers.map(commit, open_):
        pass
    open_.clear()


def _leave(*_: object) -> None:
    os._exit(0)


if __name__ == "__main__":
    main()
