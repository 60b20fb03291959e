"""The time from a row's commit until a read_committed reader has its message."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.inputs import PARTITIONS
from benchmarks.processes import ProcessFailed
from benchmarks.waits import messages_at_once
from eosframework.postgres.outbox import publish

WRITERS = 4
WARM_UP_ROWS = 2000
LATE_SECONDS = 120.0


@dataclass(frozen=True)
class Latencies:
    """In milliseconds."""

    median: float
    p99: float
    rows_per_second: float


def latencies_at(
    dsn: str,
    bootstrap_servers: str,
    topic: str,
    rows_per_second: int,
    seconds: float,
    require_running: Callable[[], None],
) -> Latencies:
    """Publish at a rate, one row in each transaction, and read what arrives.

    Raises:
        ProcessFailed: the relay ended, or a row did not arrive.
    """
    rows = WARM_UP_ROWS + round(rows_per_second * seconds)
    committed: dict[int, float] = {}
    arrived: dict[int, float] = {}
    reader = _reader(bootstrap_servers, topic)

    def read(count: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds + LATE_SECONDS
        while len(arrived) < count:
            for message in messages_at_once(reader):
                arrived[int(message.value() or b"")] = time.monotonic()
            require_running()
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{len(arrived)} of {count} rows arrived in {topic}")

    # The rate begins when the relay runs: rows that wait for its start would count as slow.
    with psycopg.connect(dsn) as connection:
        publish(connection, topic, "customer-0", "-1")
    read(1, 0)
    started = time.monotonic() + 1
    writers = [
        threading.Thread(
            target=_write,
            args=(dsn, topic, range(n, rows, WRITERS), started, rows_per_second, committed),
        )
        for n in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    try:
        read(1 + rows, rows / rows_per_second)
    finally:
        for writer in writers:
            writer.join()
        reader.close()
    waits = sorted((arrived[n] - committed[n]) * 1000 for n in range(WARM_UP_ROWS, rows))
    took = max(committed.values()) - committed[WARM_UP_ROWS]
    return Latencies(
        median=statistics.median(waits),
        p99=waits[len(waits) * 99 // 100],
        rows_per_second=(rows - WARM_UP_ROWS) / took,
    )


def _write(
    dsn: str,
    topic: str,
    numbers: range,
    started: float,
    rows_per_second: int,
    committed: dict[int, float],
) -> None:
    """Commit each row when its time has come."""
    with psycopg.connect(dsn) as connection:
        for number in numbers:
            time.sleep(max(0.0, started + number / rows_per_second - time.monotonic()))
            publish(connection, topic, f"customer-{number % 1000}", str(number))
            connection.commit()
            committed[number] = time.monotonic()


def _reader(bootstrap_servers: str, topic: str) -> Consumer:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "watcher",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    return reader
