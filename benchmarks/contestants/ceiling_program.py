"""Half of the work alone: MODE RECORDS, MODE being consume, produce, produce-batch, transactions.

`consume` takes messages and does not look at them; it commits what it has, so that its progress
shows. The others write the records of the input, made beforehand.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer

from benchmarks.inputs import PARTITIONS, json_records

CONSUMED_AT_ONCE = 10_000
PRODUCED_AT_ONCE = 1000
DISTINCT = 20_000


def main(mode: str, records: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    gc.freeze()
    gc.disable()
    if mode == "consume":
        consume()
    elif mode == "produce-batch":
        produce_batches(_producer(), records)
    else:
        produce(_producer(), records, in_transactions=mode == "transactions")
    signal.pause()


def consume() -> None:
    """Read until the process is asked to stop."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BENCH_BOOTSTRAP_SERVERS"],
            "group.id": os.environ["BENCH_APPLICATION"],
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 32 * 1024,
        }
    )
    consumer.subscribe([os.environ["BENCH_INPUT"]])
    commit_seconds = float(os.environ["BENCH_COMMIT_SECONDS"])
    clock, take = time.monotonic, consumer.consume
    commit_at = clock() + commit_seconds
    some = False
    while True:
        some = bool(take(CONSUMED_AT_ONCE, max(0.0, commit_at - clock()))) or some
        if clock() >= commit_at:
            if some:
                consumer.commit(asynchronous=True)
                some = False
            commit_at = clock() + commit_seconds


def produce(producer: Producer, records: int, *, in_transactions: bool) -> None:
    """Write one by one, as a framework has to."""
    commit_seconds = float(os.environ["BENCH_COMMIT_SECONDS"])
    target, write, clock = os.environ["BENCH_OUTPUT"], producer.produce, time.monotonic
    made = itertools.cycle(list(json_records(DISTINCT)))
    if in_transactions:
        producer.init_transactions()
        producer.begin_transaction()
    commit_at = clock() + commit_seconds
    for _ in range(0, records, PRODUCED_AT_ONCE):
        for key, value in itertools.islice(made, PRODUCED_AT_ONCE):
            while True:
                try:
                    write(target, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        if in_transactions and clock() >= commit_at:
            producer.commit_transaction()
            producer.begin_transaction()
            commit_at = clock() + commit_seconds
    if in_transactions:
        producer.commit_transaction()
    else:
        producer.flush()


def produce_batches(producer: Producer, records: int) -> None:
    """Write a thousand with each call, in turn to the partitions."""
    target = os.environ["BENCH_OUTPUT"]
    made = [{"key": key, "value": value} for key, value in json_records(DISTINCT)]
    batches: list[list[Any]] = [
        made[start : start + PRODUCED_AT_ONCE] for start in range(0, DISTINCT, PRODUCED_AT_ONCE)
    ]
    for number in range(records // PRODUCED_AT_ONCE):
        left: list[Any] = batches[number % len(batches)]
        while left:
            taken = producer.produce_batch(target, left, partition=number % PARTITIONS)
            left = left[taken:]
            producer.poll(0.01 if left else 0)
    producer.flush()


def _producer() -> Producer:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": os.environ["BENCH_BOOTSTRAP_SERVERS"],
        "linger.ms": 100,
        "retry.backoff.ms": 10,
        "queue.buffering.max.messages": 1_000_000,
    }
    if sys.argv[1] == "transactions":
        settings["transactional.id"] = os.environ["BENCH_APPLICATION"]
    return Producer(settings)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
