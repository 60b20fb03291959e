"""SELECT and produce, by hand and without any guarantee: DSN, brokers, rows to send, what of them.

`with-id` sends what the relay sends too: the message's id as a header. `bare` leaves it out.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import psycopg
from confluent_kafka import Producer

BATCH_ROWS = 5000
BARE = """
SELECT number, topic, key, value FROM eosframework.outbox
WHERE number > %s ORDER BY number LIMIT %s
"""
WITH_ID = BARE.replace("value", "value, id::text")


def main(dsn: str, bootstrap_servers: str, rows: int, what: str) -> None:
    send = {"bare": _send_bare, "with-id": _send_with_id}[what]
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
                query = WITH_ID if send is _send_with_id else BARE
                batch = cursor.execute(query, (last, BATCH_ROWS)).fetchall()
            last = send(producer, batch)
            sent += len(batch)
            producer.poll(0)
    producer.flush()
    signal.pause()  # until it is stopped, like every contestant


def _send_bare(producer: Producer, batch: list[Any]) -> int:
    last = 0
    for number, topic, key, value in batch:
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.05)
        last = number
    return last


def _send_with_id(producer: Producer, batch: list[Any]) -> int:
    last = 0
    for number, topic, key, value, id_ in batch:
        while True:
            try:
                producer.produce(topic, value, key, headers=[("__eos.outbox.id", id_)])
                break
            except BufferError:
                producer.poll(0.05)
        last = number
    return last


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
