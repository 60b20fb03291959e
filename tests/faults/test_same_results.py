"""Orders and payments behind repartition topics: the same results live and as a backlog."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.orders import (
    PARTITIONS,
    TOPOLOGY,
    Event,
    Result,
    ends,
    events,
    expected,
)
from tests.support.applications.pipeline import KEEP, Pipeline
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

NEVER_IDLE = "worker.max_task_idle_seconds=3600"
"""Equality is promised for runs in which no upstream task counted as idle."""

QUICK = ("worker.commit_interval_seconds=0.05", "worker.watermark_interval_seconds=0.1")


class Orders:
    """The application on its own topics."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        name = pipeline.name
        admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
        topics = [f"{name}.{topic}" for topic in ("orders", "payments", "paid")]
        create_topics(admin, [NewTopic(topic, PARTITIONS, 1, config=KEEP) for topic in topics])
        pipeline.apply()
        self._producer = Producer(
            {"bootstrap.servers": pipeline.bootstrap_servers, "enable.idempotence": True}
        )

    def feed(self, given: Sequence[Event]) -> None:
        """Append records to their partitions."""
        for event in given:
            topic = f"{self.pipeline.name}.{event.topic}"
            key = event.name.encode()
            self._producer.produce(topic, event.value, key, event.partition, timestamp=event.time)
        assert self._producer.flush(60) == 0

    def results(self) -> Counter[Result]:
        """Return the results so far, without those of the last records."""
        found: Counter[Result] = Counter()
        for message in self.pipeline.read(f"{self.pipeline.name}.paid"):
            left, right = json.loads(message.value() or b"[null, null]")
            found[left, right] += 1
        return Counter({pair: n for pair, n in found.items() if "end" not in pair})

    def wait_for(self, wanted: Counter[Result], seconds: float = 60) -> Counter[Result]:
        """Wait until there are as many results as expected, and return them."""
        wait_until(lambda: self.results().total() >= wanted.total(), "all results", seconds)
        time.sleep(0.5)  # for results that should not be
        return self.results()


@pytest.fixture
def orders(make_pipeline: Callable[..., Pipeline]) -> Orders:
    return Orders(make_pipeline(topology=TOPOLOGY))


def halted(worker: Any) -> None:
    """End a worker that does nothing wrong."""
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]


def test_a_backlog_has_the_results_that_follow_from_the_input(orders: Orders) -> None:
    given = events(1, 600)
    orders.feed([*given, *ends()])
    worker = orders.pipeline.start_worker(settings=[NEVER_IDLE, *QUICK])
    assert orders.wait_for(expected(given)) == expected(given)
    halted(worker)


def test_a_live_feed_has_the_results_that_follow_from_the_input(orders: Orders) -> None:
    given = events(1, 600)
    worker = orders.pipeline.start_worker(settings=[NEVER_IDLE, *QUICK])
    for start in range(0, len(given), 100):
        orders.feed(given[start : start + 100])
        time.sleep(0.2)
    orders.feed([*ends()])
    assert orders.wait_for(expected(given)) == expected(given)
    halted(worker)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
def test_kills_and_four_workers_change_no_result(orders: Orders, seed: int) -> None:
    draw, given = random.Random(seed), events(seed, 4000)
    settings = [NEVER_IDLE, *QUICK, "worker.session_timeout_seconds=6"]
    workers = [orders.pipeline.start_worker(settings=settings, instance=f"w{n}") for n in range(4)]
    for start in range(0, len(given), 500):
        orders.feed(given[start : start + 500])
        number = draw.randrange(4)
        workers[number].signal(signal.SIGKILL)
        workers[number].wait()
        time.sleep(draw.random())
        workers[number] = orders.pipeline.start_worker(settings=settings, instance=f"w{number}")
    orders.feed([*ends()])
    assert orders.wait_for(expected(given), 180) == expected(given)
    for worker in workers:
        halted(worker)
