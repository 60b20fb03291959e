"""Consume, convert, produce, commit: nothing else, as fast as confluent_kafka goes.

It has no protection against stragglers, no error handling, no logging and no rebalances: it is
the ceiling that a framework is measured against. With `BENCH_GUARANTEE=at_least_once` there are
no transactions: what was produced is flushed, then the positions are committed.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from confluent_kafka import Consumer, Message, Producer, TopicPartition

BATCH_RECORDS = 10_000
PARTITIONS = int(os.environ["BENCH_PARTITIONS"])
TRANSACTIONAL = os.environ.get("BENCH_GUARANTEE", "exactly_once") == "exactly_once"


@dataclass
class Task:
    """One partition and its producer."""

    partition: int
    producer: Producer
    is_open: bool = False


@dataclass(frozen=True)
class Steps:
    """The work of a discipline on the messages of a task, and around its commits."""

    convert: Callable[[Task, Iterable[Any]], None]
    before_commit: Callable[[Task], None] | None = None
    after_commit: Callable[[Task], None] | None = None


def run(steps: Steps, *, tables: Iterable[str] = ()) -> None:
    """Work until the process is asked to stop.

    Args:
        steps: what to do.
        tables: topics to follow as well; nothing is committed for them.
    """
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
    tasks = _tasks()
    consumer.subscribe([os.environ["BENCH_INPUT"], *tables])
    signal.signal(signal.SIGTERM, _leave)
    gc.freeze()
    gc.disable()
    _loop(consumer, tasks, steps)


def _tasks() -> list[Task]:
    """Make a transactional producer for each partition, or one producer for all."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": os.environ["BENCH_BOOTSTRAP_SERVERS"],
        "linger.ms": 100,
        "retry.backoff.ms": 10,
        "queue.buffering.max.messages": 1_000_000,
    }
    if not TRANSACTIONAL:
        shared = Producer(settings)
        return [Task(partition, shared) for partition in range(PARTITIONS)]
    name = os.environ["BENCH_APPLICATION"]
    tasks = [
        Task(partition, Producer({**settings, "transactional.id": f"{name}-{partition}"}))
        for partition in range(PARTITIONS)
    ]
    with ThreadPoolExecutor(PARTITIONS) as pool:
        for _ in pool.map(lambda task: task.producer.init_transactions(), tasks):
            pass
    return tasks


def _loop(consumer: Consumer, tasks: list[Task], steps: Steps) -> None:
    commit_seconds = float(os.environ["BENCH_COMMIT_SECONDS"])
    consume, convert, clock = consumer.consume, steps.convert, time.monotonic
    # None only of a message that was never in a log.
    partition_of = cast("Callable[[Any], int]", Message.partition)
    committers = ThreadPoolExecutor(PARTITIONS)
    commit_at = clock() + commit_seconds
    while True:
        messages = consume(BATCH_RECORDS, max(0.0, commit_at - clock()))
        for partition, run in groupby(messages, partition_of):
            task = tasks[partition]
            if not task.is_open:
                if TRANSACTIONAL:
                    task.producer.begin_transaction()
                task.is_open = True
            convert(task, run)
        open_ = [task for task in tasks if task.is_open]
        for task in open_ if TRANSACTIONAL else open_[:1]:
            task.producer.poll(0)
        if clock() >= commit_at:
            _commit(consumer, committers, open_, steps)
            commit_at = clock() + commit_seconds


def _commit(
    consumer: Consumer, committers: ThreadPoolExecutor, open_: list[Task], steps: Steps
) -> None:
    if steps.before_commit:
        for task in open_:
            steps.before_commit(task)
    if TRANSACTIONAL:
        _commit_transactions(consumer, committers, open_)
    elif open_:
        open_[0].producer.flush()
        consumer.commit(offsets=_positions(consumer, open_), asynchronous=False)
    for task in open_:
        if steps.after_commit:
            steps.after_commit(task)
        task.is_open = False


def _commit_transactions(
    consumer: Consumer, committers: ThreadPoolExecutor, open_: list[Task]
) -> None:
    metadata: Any = consumer.consumer_group_metadata()

    def commit(task: Task) -> None:
        positions = _positions(consumer, [task])
        task.producer.send_offsets_to_transaction(positions, metadata)
        task.producer.commit_transaction()

    for _ in committers.map(commit, open_):
        pass


def _positions(consumer: Consumer, tasks: list[Task]) -> list[TopicPartition]:
    source = os.environ["BENCH_INPUT"]
    return consumer.position([TopicPartition(source, task.partition) for task in tasks])


def _leave(*_: object) -> None:
    os._exit(0)
