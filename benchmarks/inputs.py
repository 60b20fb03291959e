"""The input of the contestants: records made from a seed, loaded once per run into a topic."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, cast

import orjson
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
)

Made = tuple[Any, ...]
"""Key and value, and, if wanted, timestamp in milliseconds and headers."""

PARTITIONS = 4
DOUBLED = "amount"
"""The field of every record that the contestants double."""

KEYS = 10_000
_DISTINCT = 20_000
_NAMES = ("amber", "birch", "cedar", "dune", "ember", "fjord", "glade", "heath")


def json_records(
    count: int, *, padding_bytes: int = 0, keys: int = KEYS
) -> Iterator[tuple[bytes, bytes]]:
    """Give `count` keys with JSON values of about 225 bytes, the same ones every time.

    Args:
        padding_bytes: by how much each value is longer.
        keys: how many different ones; a multiple of the partitions, so that each is in one.
    """
    source = random.Random(20)
    distinct = [_value(source, number, padding_bytes) for number in range(_DISTINCT)]
    for number in range(count):
        yield b"customer-%05d" % (number % keys), distinct[number % _DISTINCT]


def create_topics(
    bootstrap_servers: str,
    *topics: str,
    partitions: int = PARTITIONS,
    replicas: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Create topics and wait until they are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = [
        NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replicas,
            config=dict(settings or {}),
        )
        for topic in topics
    ]
    for created in cast(dict[str, Future[None]], admin.create_topics(new)).values():
        created.result()


def delete_topics(bootstrap_servers: str, *topics: str) -> None:
    """Delete topics and wait for the answer, so that their files make room."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for deleted in cast(dict[str, Future[None]], admin.delete_topics(list(topics))).values():
        deleted.result()


def delete_topics_of(bootstrap_servers: str, application: str) -> None:
    """Delete what an application has made for itself."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    own = re.compile(rf"(.*__)?{re.escape(application)}[.-].*")
    if found := [name for name in admin.list_topics(timeout=10).topics if own.fullmatch(name)]:
        delete_topics(bootstrap_servers, *found)


def load(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[Made],
    partitions: int = PARTITIONS,
    *,
    by_key: bool = False,
) -> int:
    """Write records to all partitions in turn; return how many bytes the values have.

    Args:
        by_key: choose partitions as the producers of the contestants do.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 20,
            "batch.num.messages": 20_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            "partitioner": "murmur2_random",
        }
    )
    total_bytes = 0
    for number, (key, value, *more) in enumerate(records):
        total_bytes += len(value)
        while True:
            try:
                place = -1 if by_key else number % partitions
                producer.produce(topic, value, key, place, None, None, *more)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records could not be written to {topic} within 60 s")
    return total_bytes


def _value(source: random.Random, number: int, padding_bytes: int) -> bytes:
    order: dict[str, Any] = {
        "order": number,
        "customer": f"customer-{number % KEYS:05}",
        "product": f"{source.choice(_NAMES)} {source.choice(_NAMES)}",
        DOUBLED: source.randrange(1, 1_000_000),
        "price": round(source.uniform(1, 500), 2),
        "placed_at": f"2026-03-{source.randrange(1, 29):02}T{source.randrange(24):02}:15:00Z",
        "express": source.random() < 0.2,
        "tags": source.sample(_NAMES, 3),
        "note": f"{source.getrandbits(144):x}",
    }
    if padding_bytes:
        order["padding"] = "x" * (padding_bytes - len(',"padding":""'))
    return orjson.dumps(order)
