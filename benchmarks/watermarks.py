"""`watermarks`: what a watermark costs in CPU time, and how many there are.

They cost per second, producer and partition, and nothing per record. Two runs of a worker differ by
more than that, and the more the busier the machine is. So watermarks alone are written and read, in
transactions of one process, and its CPU time is divided by their number. A worker writes at most
one for each producer, partition and interval.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import cast

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from benchmarks.inputs import create_topics
from benchmarks.measure import ANSWER_SECONDS
from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.engine.operators.entries import EntryFormat
from eosframework.engine.operators.store_transaction import Journal, open_transaction
from eosframework.engine.operators.watermarks import (
    WATERMARK_KEY,
    Announcement,
    UpstreamTimes,
    WatermarkMessage,
    encode_watermark,
)
from eosframework.engine.task.task_time import Announcing, Downstream, watermarks
from eosframework.serialization.serdes import BYTES
from eosframework.state.memory import MemoryStore

SIZES = ((4, 4), (64, 64), (64, 1))
"""Partitions on both sides, and how many of them share a producer."""

DEFAULT_ROUNDS = 5
DEFAULT_RECORDS = 50_000
INTERVAL_SECONDS = 0.5


def run(session: Session, options: Options, report: Report) -> None:
    """Measure the cost of one of each size."""
    records = options.records or DEFAULT_RECORDS
    for size in SIZES:
        costs = [_cost(session, size, records) for _ in range(options.rounds or DEFAULT_ROUNDS)]
        report.progress(f"{size}: {costs} µs written, read")
        _report(report, size, costs)


def _cost(session: Session, size: tuple[int, int], records: int) -> tuple[float, float]:
    """Return the CPU microseconds to write a watermark, and to read it."""
    partitions, sharing = size
    topic = session.name("watermarks")
    create_topics(session.bootstrap_servers, topic, partitions=partitions)
    own = {"bootstrap.servers": session.bootstrap_servers, "transactional.id": topic}
    producer = Producer(own)
    producer.init_transactions(ANSWER_SECONDS)
    tasks = [Announcing(n, [Downstream(topic, partitions, 0)]) for n in range(partitions)]
    groups = [tasks[first : first + sharing] for first in range(0, partitions, sharing)]
    began = time.process_time()
    producer.begin_transaction()
    for number in range(records // partitions):
        group = groups[number % len(groups)]
        for one in group:
            one.announced(number, 0.0)
        for name, value, key, partition, *_ in watermarks(group):
            producer.produce(name, value, key, partition)
        producer.poll(0)
    producer.commit_transaction(ANSWER_SECONDS)
    written = time.process_time() - began
    read, found = _read(session, topic, partitions)
    return 1e6 * written / found, 1e6 * read / found


def _read(session: Session, topic: str, partitions: int) -> tuple[float, int]:
    """Return the CPU seconds to take all watermarks of a topic, and their number."""
    journal: Journal = []
    store = open_transaction(EntryFormat("times", BYTES), MemoryStore(), journal)
    times = [UpstreamTimes(store, journal, {topic: partitions}) for _ in range(partitions)]
    for one in times:
        one.begin()
    began, found = time.process_time(), 0
    for message in _messages(session.bootstrap_servers, topic, partitions):
        if message.key() == WATERMARK_KEY:
            times[message.partition() or 0].take(cast(WatermarkMessage, message), 0)
            found += 1
    return time.process_time() - began, found


def _messages(servers: str, topic: str, partitions: int) -> Iterator[Message]:
    """Yield the committed records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": topic, "isolation.level": "read_committed"}
        | {"enable.partition.eof": True, "auto.offset.reset": "error"}
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        left = set(range(partitions))
        while left:
            for message in consumer.consume(1000, 1.0):
                if message.error():
                    left.discard(message.partition())
                else:
                    yield message
    finally:
        consumer.close()


def _report(report: Report, size: tuple[int, int], costs: list[tuple[float, float]]) -> None:
    partitions, sharing = size
    number = partitions**2 / sharing / INTERVAL_SECONDS
    each = len(WATERMARK_KEY) + len(encode_watermark([Announcement(0, 0, False)] * sharing))
    share = number * statistics.median(map(sum, costs)) / 1e6
    table = Table(
        title=f"{partitions} partitions on both sides, {sharing} to a producer",
        columns=("figure", "value"),
        rows=[
            ("CPU µs to write a watermark", _spread([cost for cost, _ in costs])),
            ("CPU µs to read a watermark", _spread([cost for _, cost in costs])),
            ("bytes of its key and value", f"{each:,}"),
            ("watermarks/s of a worker, at most", f"{number:,.0f}"),
            ("bytes/s, at most", f"{number * each:,.0f}"),
            ("share of a core, at most", f"{share:.2%}"),
        ],
    )
    report.add(f"watermarks-{partitions}-{sharing}", table, {"costs": costs, "bytes": each})


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"
