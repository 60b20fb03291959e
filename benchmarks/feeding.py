"""A trickle of records, so that progress shows at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator

from confluent_kafka import Producer

from benchmarks.inputs import PARTITIONS, json_records


@contextlib.contextmanager
def feeding(
    bootstrap_servers: str,
    topic: str,
    *,
    pause_seconds: float = 0.02,
    partitions: Iterable[int] = range(PARTITIONS),
) -> Iterator[None]:
    """Write one record to each of `partitions` per `pause_seconds` for the length of the block."""
    fed = list(partitions)
    done = threading.Event()

    def feed() -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
        key, value = next(json_records(1))
        while not done.wait(pause_seconds):
            for partition in fed:
                producer.produce(topic, value, key, partition)
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=feed, name="feeder")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
