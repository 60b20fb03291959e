"""Consume, count per key, produce, commit, write RocksDB: nothing else, as fast as it goes.

State is what a transaction changed over what was committed before; after the commit it goes into
RocksDB in one batch with its position in the changelog. No protection against stragglers, no error
handling, no rebalances, no restore: it is the ceiling that a framework is measured against.

`BENCH_EMIT` and `BENCH_CHANGELOG` say what is written of a key: `each` update, or the last one of
a transaction (`commit`).
"""

from __future__ import annotations

import gc
import os
import signal
import struct
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import orjson
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from rocksdict import Options, Rdict, WriteBatch

PARTITIONS = 4
BATCH_RECORDS = 10_000
POSITION = b"\x00position"

_COUNT = struct.Struct(">q")
_ENTRY = struct.Struct(">BQq")


class Task:
    """One partition: its producer, its store, and what the open transaction changed."""

    def __init__(self, servers: str, application: str, partition: int, directory: str) -> None:
        self.partition = partition
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": f"{application}-{partition}",
                "linger.ms": 100,
                "retry.backoff.ms": 10,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self.is_open = False
        self.changed: dict[bytes, tuple[int, int, int]] = {}
        self._store = Rdict(f"{directory}/{application}-{partition}", Options(raw_mode=True))
        self._known: dict[bytes, tuple[int, int, int]] = {}
        self._position = 0

    def before(self, key: bytes) -> tuple[int, int, int] | None:
        """The version, the timestamp and the count that were committed."""
        if key in self._known:
            return self._known[key]
        data = self._store.get(key)
        return None if data is None else _ENTRY.unpack(data)

    def delivered(self, _: object, message: Any) -> None:
        self._position = message.offset() + 1

    def write(self) -> None:
        batch = WriteBatch(raw_mode=True)
        pack = _ENTRY.pack
        for key, entry in self.changed.items():
            batch[key] = pack(*entry)
        batch[POSITION] = _COUNT.pack(self._position)
        self._store.write(batch)
        self._known.update(self.changed)
        self.changed.clear()


def main() -> None:
    servers, application = os.environ["BENCH_BOOTSTRAP_SERVERS"], os.environ["BENCH_APPLICATION"]
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": application,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 32 * 1024,
        }
    )
    directory = os.environ["BENCH_STATE_DIRECTORY"]
    os.makedirs(directory, exist_ok=True)
    tasks = [Task(servers, application, number, directory) for number in range(PARTITIONS)]
    for task in tasks:
        task.producer.init_transactions()
    consumer.subscribe([os.environ["BENCH_INPUT"]])
    signal.signal(signal.SIGTERM, _leave)
    gc.freeze()
    gc.disable()
    _loop(consumer, tasks)


def _loop(consumer: Consumer, tasks: list[Task]) -> None:
    commit_seconds = float(os.environ["BENCH_COMMIT_SECONDS"])
    consume, clock, partition_of = consumer.consume, time.monotonic, Message.partition
    count, send_last = _counting(), _sending()
    committers = ThreadPoolExecutor(PARTITIONS)
    commit_at = clock() + commit_seconds
    while True:
        messages = consume(BATCH_RECORDS, max(0.0, commit_at - clock()))
        for partition, run in groupby(messages, partition_of):
            task = tasks[partition]
            if not task.is_open:
                task.producer.begin_transaction()
                task.is_open = True
            count(task, run)
        for task in tasks:
            task.producer.poll(0)
        if clock() >= commit_at:
            open_ = [task for task in tasks if task.is_open]
            for task in open_:
                send_last(task)
            _commit(consumer, committers, open_)
            commit_at = clock() + commit_seconds


def _counting() -> Callable[[Task, Iterable[Any]], None]:
    target, changelog = os.environ["BENCH_OUTPUT"], os.environ["BENCH_CHANGELOG_TOPIC"]
    emit, log = os.environ["BENCH_EMIT"] == "each", os.environ["BENCH_CHANGELOG"] == "each"
    loads, pack_count, pack = orjson.loads, _COUNT.pack, _ENTRY.pack

    def count(task: Task, messages: Iterable[Any]) -> None:
        changed, before, produce = task.changed, task.before, task.producer.produce
        partition = task.partition
        for message in messages:
            loads(message.value())
            key, at = message.key(), message.timestamp()[1]
            entry = changed.get(key) or before(key)
            if entry is None:
                entry = 1, at, 1
            else:
                _, latest, counted = entry
                entry = 1, at if at > latest else latest, counted + 1
            changed[key] = entry
            if emit:
                produce(target, pack_count(entry[2]), key, -1, None, None, entry[1])
            if log:
                produce(changelog, pack(*entry), key, partition, None, None, at)

    return count


def _sending() -> Callable[[Task], None]:
    """Return what goes out at the commit; the last record tells where the changelog ends."""
    target, changelog = os.environ["BENCH_OUTPUT"], os.environ["BENCH_CHANGELOG_TOPIC"]
    emit, log = os.environ["BENCH_EMIT"] == "commit", os.environ["BENCH_CHANGELOG"] == "commit"
    pack_count, pack = _COUNT.pack, _ENTRY.pack

    def send(task: Task) -> None:
        produce, partition = task.producer.produce, task.partition
        if emit:
            for key, (_, at, counted) in task.changed.items():
                produce(target, pack_count(counted), key, -1, None, None, at)
        entries = list(task.changed.items())
        for key, entry in entries if log else ():
            produce(changelog, pack(*entry), key, partition, None, None, entry[1])
        key, entry = entries[-1]
        produce(changelog, pack(*entry), key, partition, task.delivered, None, entry[1])

    return send


def _commit(consumer: Consumer, committers: ThreadPoolExecutor, open_: list[Task]) -> None:
    metadata: Any = consumer.consumer_group_metadata()
    source = os.environ["BENCH_INPUT"]

    def commit(task: Task) -> None:
        positions = consumer.position([TopicPartition(source, task.partition)])
        task.producer.send_offsets_to_transaction(positions, metadata)
        task.producer.commit_transaction()

    for _ in committers.map(commit, open_):
        pass
    for task in open_:
        task.producer.poll(0)
        task.write()
        task.is_open = False


def _leave(*_: object) -> None:
    os._exit(0)


if __name__ == "__main__":
    main()
