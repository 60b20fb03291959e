"""Readers of a run, with plain clients that reach the brokers without the proxies."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from kafka import KafkaAdminClient

from tests.soak.effects import HOSTILE, Total
from tests.soak.history import Input, Polled, Seen
from tests.soak.hostile import MARK
from tests.support.applications.pipeline import read_committed
from tests.support.verifiers.messages import position_of

POLL_SECONDS = 0.1
QUIET = {"log_level": 0}
"""Brokers are broken on purpose; what librdkafka says about it would drown the run's own log."""
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Background(ABC):
    """Repeats a step on a thread of its own, and raises in the end what the step raised."""

    def __init__(self, name: str) -> None:
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def step(self) -> None:
        """What is repeated; waits by itself."""

    def wait(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        self._end.wait(seconds)

    def finish(self) -> None:
        """End the thread, and raise what ended it before."""
        self._end.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def require_alive(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self.step()
        except BaseException as failure:
            self._failure = failure


class Reader(Background):
    """Reads outputs along with the run; what it has got stays, whatever becomes of the topic.

    Args:
        topics: by side.
        isolation: `read_committed` or `read_uncommitted`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: dict[str, str],
        partitions: int,
        isolation: str = "read_committed",
    ) -> None:
        super().__init__(f"reader {isolation}")
        self.seen: list[Seen] = []
        self._sides = {topic: side for side, topic in topics.items()}
        self._ends = {(topic, p): 0 for topic in self._sides for p in range(partitions)}
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap_servers,
                "group.id": "soak.reader",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for topic, p in self._ends])

    def positions(self) -> dict[tuple[str, int], int]:
        """Where it last found the end of each partition; markers count."""
        return dict(self._ends)

    def step(self) -> None:
        for message in self._consumer.consume(1000, POLL_SECONDS):
            self._take(message)

    def finish(self) -> None:
        super().finish()
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            topic, partition, offset = position_of(message)
            self.seen.append(_seen(self._sides[topic], partition, offset, message.value()))
        elif error.code() == KafkaError._PARTITION_EOF:
            topic, partition, offset = position_of(message)
            self._ends[topic, partition] = offset
        # Anything else is told while brokers are away, and librdkafka goes on by itself.
        elif error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
            raise AssertionError(f"the reader lost its place: {error}")


class OffsetPoller(Background):
    """Asks for a group's committed offsets again and again."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, partitions: int) -> None:
        super().__init__("offsets")
        self.polled: list[Polled] = []
        self.latest: dict[int, int] = {}
        self._wanted = [TopicPartition(topic, p) for p in range(partitions)]
        self._consumer = Consumer(
            {**QUIET, "bootstrap.servers": bootstrap_servers, "group.id": group}
        )

    @property
    def total(self) -> int:
        """How many inputs are committed, as far as it was told."""
        return sum(self.latest.values())

    def step(self) -> None:
        self.wait(POLL_SECONDS)
        try:
            answer = self._consumer.committed(self._wanted, timeout=5)
        except KafkaException:
            return  # A broker is away, or what is pending holds the answer back.
        for position in answer:
            if position.error is not None or position.offset < 0:
                continue
            if position.offset != self.latest.get(position.partition):
                self.latest[position.partition] = position.offset
                self.polled.append(Polled(position.partition, position.offset))

    def finish(self) -> None:
        super().finish()
        self._consumer.close()


def ends_of(
    bootstrap_servers: str, topics: Sequence[str], partitions: int, isolation: str
) -> dict[tuple[str, int], int]:
    """Return the last stable offset of each partition, or its high watermark."""
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "soak.ends",
            "isolation.level": isolation,
        }
    )
    try:
        return {
            (topic, p): consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60)[1]
            for topic in topics
            for p in range(partitions)
        }
    finally:
        consumer.close()


def read_numbers(bootstrap_servers: str, topic: str, partitions: int) -> dict[int, list[int]]:
    """Return the numbers in the input, by partition in order; a hostile record is `HOSTILE`."""
    numbers: dict[int, list[int]] = {p: [] for p in range(partitions)}
    ends = ends_of(bootstrap_servers, [topic], partitions, "read_uncommitted")
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "soak.input",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 20_000_000,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        while sum(map(len, numbers.values())) < sum(ends.values()):
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                partition = message.partition()
                assert partition is not None
                assert message.offset() == len(numbers[partition])
                if MARK in dict(message.headers() or ()):
                    numbers[partition].append(HOSTILE)
                else:
                    numbers[partition].append(json.loads(message.value() or b"")["n"])
    finally:
        consumer.close()
    return numbers


def read_dead_letters(bootstrap_servers: str, topic: str) -> list[Input]:
    """Return the inputs of all dead letters."""
    found: list[Input] = []
    for message in read_committed(bootstrap_servers, topic):
        # The framework's headers are the last of their name.
        headers: dict[str, Any] = dict(message.headers() or ())
        place = (headers["__streams.errors.partition"], headers["__streams.errors.offset"])
        found.append(Input(*map(int, place)))
    return found


def read_journals(directories: Sequence[Path]) -> dict[str, list[Input]]:
    """Return the calls of each worker process, by the name it gave itself."""
    journals: dict[str, list[Input]] = {}
    for directory in directories:
        for path in directory.glob("*.journal"):
            # A process killed while it wrote may leave a part of a line.
            lines = path.read_bytes().split(b"\n")[:-1]
            journals[path.stem] = [Input(*map(int, line.split())) for line in lines]
    return journals


def open_transactional_ids(bootstrap_servers: str, application: str) -> list[str]:
    """Return the ids of an application whose transaction is not complete."""
    # The stubs of kafka-python are of version 2, which had no such methods.
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap_servers.split(","))
    try:
        listed = [one for of_broker in admin.list_transactions().values() for one in of_broker]
    finally:
        admin.close()
    return sorted(
        one.transactional_id
        for one in listed
        if one.transactional_id.startswith(f"{application}:") and one.state in OPEN_STATES
    )


def _seen(side: str, partition: int, offset: int, value: bytes | None) -> Seen:
    made = json.loads(value or b"")
    return Seen(
        side,
        partition,
        offset,
        Input(made["partition"], made["offset"]),
        made["index"],
        made["attempt"],
        Total(*made["total"]),
    )
