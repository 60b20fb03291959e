"""SELECT and produce, by hand and without any guarantee: DSN, brokers, rows to send."""

from __future__ import annotations

import sys

import psycopg
from confluent_kafka import Producer

BATCH_ROWS = 5000
SELECT = """
SELECT number, topic, key, value FROM eosframework.outbox
WHERE number > %s ORDER BY number LIMIT %s
"""


def main(dsn: str, bootstrap_servers: str, rows: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    last = sent = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        while sent < rows:
            with connection.cursor(binary=True) as cursor:
                batch = cursor.execute(SELECT, (last, BATCH_ROWS)).fetchall()
            for number, topic, key, value in batch:
                while True:
                    try:
                        producer.produce(topic, value, key)
                        break
                    except BufferError:
                        producer.poll(0.05)
                last = number
            sent += len(batch)
            producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
