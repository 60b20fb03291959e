"""The time of records from `produce()`, through a contestant, to a read_committed reader."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from benchmarks import feeding_program
from benchmarks.contestants.work import Contestant, Work
from benchmarks.disciplines import PASSTHROUGH
from benchmarks.feeding_program import TIME
from benchmarks.inputs import PARTITIONS, create_topics, delete_topics
from benchmarks.measure import CommittedOffsets
from benchmarks.processes import Child, Command, ProcessFailed, running
from benchmarks.session import Session

RECORDS_PER_SECOND = 10_000
WARM_UP_SECONDS = 3.0
LATE_SECONDS = 300.0


@dataclass(frozen=True)
class Waits:
    """In milliseconds."""

    median: float
    p99: float
    records: int


def waits_of(
    session: Session,
    contestant: Contestant | None,
    *,
    seconds: float,
    commit_seconds: float = 0.1,
    partitions: int = PARTITIONS,
) -> Waits:
    """Feed a contestant at a steady rate and read what it commits.

    Args:
        contestant: who is in between; None: nobody, the reader reads the input.
        seconds: the length of what counts; it begins `WARM_UP_SECONDS` behind the first output.
        commit_seconds: the contestant's commit interval.
        partitions: of input and output.
    """
    servers, topic = session.bootstrap_servers, session.name("fed")
    create_topics(servers, topic, partitions=partitions)
    log_file = session.directory / f"{topic}.log"
    program = [sys.executable, "-m", feeding_program.__name__]
    told = [servers, topic, str(RECORDS_PER_SECOND), str(partitions)]
    feeder = Command([*program, *told])

    def measure(_: CommittedOffsets, child: Child, work: Work) -> Waits:
        with running(feeder, log_file) as fed:
            return _read(servers, work.output_topic, partitions, seconds, [fed, child])

    try:
        if contestant is None:
            with running(feeder, log_file) as fed:
                return _read(servers, topic, partitions, seconds, [fed])
        return session.run(
            contestant,
            topic,
            measure,
            discipline=PASSTHROUGH.name,
            commit_interval_seconds=commit_seconds,
            partitions=partitions,
        )
    finally:
        delete_topics(servers, topic)


def messages_at_once(reader: Consumer) -> list[Message]:
    """Return the available messages once there is one; `consume` alone waits for its maximum."""
    first = reader.poll(0.1)
    return [] if first is None else [first, *reader.consume(5000, 0)]


def _read(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    seconds: float,
    children: Sequence[Child],
) -> Waits:
    """Read until every partition has gone past the end of what counts."""
    begin = end = None
    behind = set(range(partitions))
    waits: list[float] = []
    deadline = time.monotonic() + LATE_SECONDS
    with closing(_reader(bootstrap_servers, topic, partitions)) as reader:
        while behind:
            messages = messages_at_once(reader)
            now = time.time_ns()
            if messages and begin is None:
                begin = now + int(WARM_UP_SECONDS * 1e9)
                end = begin + int(seconds * 1e9)
                deadline += WARM_UP_SECONDS + seconds
            for message in messages:
                sent = TIME.unpack_from(message.value() or b"")[0]
                if sent >= (end or 0):
                    behind.discard(message.partition() or 0)
                elif sent >= (begin or 0):
                    waits.append((now - sent) / 1e6)
            for child in children:
                child.require_running()
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    f"partitions {sorted(behind)} of {topic} stand still, {len(waits)} records "
                    "came in time; the last lines:\n"
                    + "\n".join(child.log_tail() for child in children)
                )
    waits.sort()
    return Waits(waits[len(waits) // 2], waits[len(waits) * 99 // 100], len(waits))


def _reader(bootstrap_servers: str, topic: str, partitions: int) -> Consumer:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "watcher",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
        }
    )
    reader.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    return reader
