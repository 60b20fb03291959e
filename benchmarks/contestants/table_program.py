"""Consume, COPY into a staging table, INSERT … ON CONFLICT, offsets, COMMIT: nothing else.

It has no protection against zombies, no error handling, no logging and no rebalances: it is the
ceiling that what fills tables is measured against.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from operator import itemgetter

import orjson
import psycopg
from confluent_kafka import Consumer

PARTITIONS = 4
BATCH_RECORDS = 10_000
COLUMNS = ("id", "customer", "product", "amount", "placed_at")


def main() -> None:
    topic = os.environ["BENCH_INPUT"]
    commit_seconds = float(os.environ["BENCH_COMMIT_SECONDS"])
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BENCH_BOOTSTRAP_SERVERS"],
            "group.id": os.environ["BENCH_APPLICATION"],
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 32 * 1024,
        }
    )
    consumer.subscribe([topic])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    gc.freeze()
    gc.disable()
    with psycopg.connect(os.environ["BENCH_DSN"]) as connection:
        connection.execute("CREATE TEMP TABLE stage AS SELECT * FROM orders WITH NO DATA")
        connection.commit()
        _loop(consumer, connection, commit_seconds)


def _loop(
    consumer: Consumer, connection: psycopg.Connection[tuple[object, ...]], commit_seconds: float
) -> None:
    loads, values_of = orjson.loads, itemgetter(*COLUMNS)
    columns = ", ".join(COLUMNS)
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in COLUMNS[1:])
    insert = (
        f"INSERT INTO orders ({columns}) SELECT {columns} FROM stage "
        f"ON CONFLICT (id) DO UPDATE SET {changes}"
    )
    while True:
        messages = []
        commit_at = time.monotonic() + commit_seconds
        while len(messages) < BATCH_RECORDS and (left := commit_at - time.monotonic()) > 0:
            messages += consumer.consume(BATCH_RECORDS - len(messages), left)
        if not messages:
            continue
        offsets: dict[int, int] = {}
        newest: dict[int, tuple[object, ...]] = {}
        for message in messages:
            row = values_of(loads(message.value()))
            newest[row[0]] = row
            offsets[message.partition()] = message.offset() + 1
        cursor = connection.cursor()
        cursor.execute("TRUNCATE stage")
        with cursor.copy(f"COPY stage ({columns}) FROM STDIN") as copy:
            for row in newest.values():
                copy.write_row(row)
        cursor.execute(insert)
        cursor.executemany(
            "UPDATE progress SET next_offset = %s WHERE partition = %s",
            [(offset, partition) for partition, offset in offsets.items()],
        )
        connection.commit()


if __name__ == "__main__":
    main()
