"""Counts behind a repartition topic whose two source partitions pause, and an independent verdict.

Event times are those of the clock, as in a live feed: a partition that pauses has its records at
the time at which it goes on. So without a fault none is late, however short windows are.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import KEEP, Pipeline, WorkerProcess
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

TOPOLOGY = """\
application: NAME
sources:
  readings: {topic: NAME.readings, key: bytes, value: json}
streams:
  counted:
    from: readings
    steps:
      - group_by: {by: "tests.support.applications.orders:order_of", key: string}
      - count: {window: {tumbling: 1s, late: NAME.late}, emit: close}
    to: {topic: NAME.counted}
"""

KEYS = 8
TICK_SECONDS = 0.1
END_AFTER_MS = 30 * 60 * 1000
"""The time of the last records, which close all windows: as far ahead as brokers accept."""


@dataclass(frozen=True)
class Schedule:
    """What happens to the source partition 1, in ticks, and to the worker that reads it.

    Args:
        pauses_at: the tick at which it pauses.
        resumes_at: the tick from which it has records again.
        fault: a signal for its worker, or None.
        fault_at: the tick of the signal.
        ends_at: the last tick. A suspended worker goes on then.
        per_transaction: the ticks of a transaction in which it is written; 0: none.
    """

    pauses_at: int = 10
    resumes_at: int = 36
    fault: signal.Signals | None = None
    fault_at: int = 34
    ends_at: int = 110
    per_transaction: int = 0

    @classmethod
    def drawn(cls, seed: int) -> Schedule:
        """Return a random one."""
        draw = random.Random(seed)
        pauses_at = draw.randrange(5, 20)
        resumes_at = pauses_at + draw.randrange(5, 50)
        fault_at = draw.randrange(pauses_at, resumes_at + 5)
        return cls(
            pauses_at,
            resumes_at,
            draw.choice([None, signal.SIGKILL, signal.SIGSTOP]),
            fault_at,
            resumes_at + draw.randrange(20, 90),
            draw.choice([0, 0, 10, 40]),
        )


class PausedSources(Pipeline):
    """The application, its workers, and what its outputs must say."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        super().__init__(
            bootstrap_servers, name, directory, topology=TOPOLOGY, partitions=2, outputs={}
        )
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        topics = ((f"{name}.readings", 2), (f"{name}.counted", 2), (f"{name}.late", 1))
        create_topics(admin, [NewTopic(topic, n, 1, config=KEEP) for topic, n in topics])
        self.apply()
        self.expected: Counter[tuple[str, int]] = Counter()
        self._plain = feeder(bootstrap_servers)
        self._numbers = [0, 0]

    def send(self, producer: Producer, partition: int, at_ms: int) -> None:
        """Append a reading to a source partition."""
        number = self._numbers[partition]
        self._numbers[partition] += 1
        order = f"o{(2 * number + partition) % KEYS}"
        self.expected[order, at_ms - at_ms % 1000] += 1
        value = json.dumps({"order": order}).encode()
        producer.produce(f"{self.name}.readings", value, b"", partition, timestamp=at_ms)

    def feed_at(self, partition: int, times_ms: Sequence[int]) -> None:
        """Append readings with given times."""
        for at_ms in times_ms:
            self.send(self._plain, partition, at_ms)
        assert self._plain.flush(60) == 0

    def end(self) -> None:
        """Append the records that close all windows."""
        at_ms = int(time.time() * 1000) + END_AFTER_MS
        for partition in (0, 1):
            topic, value = f"{self.name}.readings", b'{"order": "end"}'
            self._plain.produce(topic, value, b"", partition, timestamp=at_ms)
        assert self._plain.flush(60) == 0

    def reader_of(self, partition: int) -> WorkerProcess | None:
        """Return the worker to which a source partition was assigned last."""
        place = f"{self.name}.readings[{partition}]"
        found = [
            (str(event["timestamp"]), number)
            for number, worker in enumerate(self.workers)
            for event in worker.events("task_assigned")
            if place in dict(event["offsets"])  # pyright: ignore[reportArgumentType, reportCallIssue]
        ]
        return self.workers[max(found)[1]] if found else None

    def start_both(self, settings: Sequence[str]) -> None:
        """Start two workers, each of which reads one of the source partitions."""
        for name in ("one", "two"):
            self.start_worker(instance=name, settings=settings)

        def are_apart() -> bool:
            readers = [self.reader_of(partition) for partition in (0, 1)]
            return None not in readers and readers[0] is not readers[1]

        wait_until(are_apart, "each worker with a source partition")

    def play(self, schedule: Schedule) -> list[int]:
        """Feed by the clock; return how many readings partition 1 had after each signal."""
        transactional = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "transactional.id": f"{self.name}.feed",
                "transaction.timeout.ms": 60_000,
            }
        )
        transactional.init_transactions()
        is_open, hit = False, None
        began = time.monotonic()
        after = 0
        for tick in range(schedule.ends_at):
            time.sleep(max(0.0, began + tick * TICK_SECONDS - time.monotonic()))
            now_ms = int(time.time() * 1000)
            if schedule.fault is not None and tick == schedule.fault_at:
                hit = self.reader_of(1)
                assert hit is not None
                hit.signal(schedule.fault)
            if not schedule.pauses_at <= tick < schedule.resumes_at:
                producer: Producer = transactional if schedule.per_transaction else self._plain
                if schedule.per_transaction and not is_open:
                    transactional.begin_transaction()
                    is_open = True
                self.send(producer, 1, now_ms)
                assert producer.flush(60) == 0
                after += hit is not None
            if is_open and (tick + 1) % schedule.per_transaction == 0:
                transactional.commit_transaction(60)
                is_open = False
            self.feed_at(0, [now_ms])
        if is_open:
            transactional.commit_transaction(60)
        if hit is not None and schedule.fault is signal.SIGSTOP:
            hit.signal(signal.SIGCONT)
        self.end()
        return [after]

    def counts(self) -> Counter[tuple[str, int]]:
        """Return the counts of the windows that went out."""
        found: Counter[tuple[str, int]] = Counter()
        for message in self.read(f"{self.name}.counted"):
            result = json.loads(message.value() or b"")
            found[(message.key() or b"").decode(), result["start"]] += result["value"]
        return found

    def late(self) -> int:
        """Return how many readings were late."""
        return len(self.read(f"{self.name}.late"))

    def findings(self) -> Iterator[str]:
        """Wait for all windows, and yield what differs from a run without faults."""
        wanted = self.expected.total()

        def is_complete() -> bool:
            return self.counts().total() + self.late() >= wanted

        wait_until(is_complete, "all windows")
        if late := self.late():
            yield f"{late} of {wanted} readings were late"
        if (counts := self.counts()) != self.expected:
            yield f"counts differ: {counts - self.expected}, {self.expected - counts}"
