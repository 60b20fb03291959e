"""Orders and payments (orders.py) on topics of a broker: fed live or at once, and what was sent."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.orders import PARTITIONS, Event, Result, ends
from tests.support.applications.pipeline import KEEP, Pipeline
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

NEVER_IDLE = "worker.max_task_idle_seconds=3600"
"""Equality is promised for runs in which no upstream task counted as idle."""

QUICK = ("worker.commit_interval_seconds=0.05", "worker.watermark_interval_seconds=0.1")

Record = tuple[int | None, bytes | None, bytes | None, int]
"""Partition, key, value and timestamp."""


class Orders:
    """An application on its own topics.

    Args:
        pipeline: of a topology that reads `orders` and `payments`.
        outputs: the topics that it writes.
        inputs: those that it reads.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        outputs: Sequence[str] = ("paid",),
        inputs: Sequence[str] = ("orders", "payments"),
    ) -> None:
        self.pipeline = pipeline
        self._inputs = inputs
        self._outputs = outputs
        admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
        topics = [f"{pipeline.name}.{topic}" for topic in (*inputs, *outputs)]
        create_topics(admin, [NewTopic(topic, PARTITIONS, 1, config=KEEP) for topic in topics])
        pipeline.apply()
        self._producer = Producer(
            {"bootstrap.servers": pipeline.bootstrap_servers, "enable.idempotence": True}
        )

    def feed(self, given: Iterable[Event]) -> None:
        """Append records to their partitions."""
        for event in given:
            topic = f"{self.pipeline.name}.{event.topic}"
            self._producer.produce(
                topic, event.value, event.key, event.partition, timestamp=event.time
            )
        assert self._producer.flush(60) == 0

    def feed_live(self, given: Sequence[Event], seed: int) -> None:
        """Append records bit by bit; one partition stands still until the others have ended."""
        draw = random.Random(seed)
        silent = [event for event in given if (event.topic, event.partition) == ("orders", 0)]
        others = [event for event in given if (event.topic, event.partition) != ("orders", 0)]
        for records in (others, silent):
            step = max(1, len(records) // 8)
            for start in range(0, len(records), step):
                self.feed(records[start : start + step])
                time.sleep(draw.random())
        self.feed_ends()

    def feed_ends(self) -> None:
        """Append the records after which all others are decided."""
        self.feed(ends(self._inputs))

    def results(self) -> Counter[Result]:
        """Return the pairs so far, without those of the last records."""
        found: Counter[Result] = Counter()
        for message in self.pipeline.read(f"{self.pipeline.name}.paid"):
            left, right = json.loads(message.value() or b"[null, null]")
            found[left, right] += 1
        return Counter({pair: n for pair, n in found.items() if "end" not in pair})

    def wait_for(self, wanted: Counter[Result], seconds: float = 60) -> Counter[Result]:
        """Wait until there are as many pairs as expected, and return them."""
        wait_until(lambda: self.results().total() >= wanted.total(), "all results", seconds)
        time.sleep(0.5)  # for results that should not be
        return self.results()

    def records(self) -> dict[str, Counter[Record]]:
        """Return the records of each output, without those of the last records' keys."""
        return {output: Counter(self._records(output)) for output in self._outputs}

    def _records(self, output: str) -> Iterator[Record]:
        for message in self.pipeline.read(f"{self.pipeline.name}.{output}"):
            if not (message.key() or b"").startswith(b"end"):
                key, value, at = message.key(), message.value(), message.timestamp()[1]
                yield message.partition(), key, value, at
