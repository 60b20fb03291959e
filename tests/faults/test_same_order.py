"""Duplicates behind a repartition topic: the first one by time counts, whatever is killed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.orders import HOUR_MS, PARTITIONS, Event, ends, events
from tests.support.applications.pipeline import KEEP, Pipeline
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

TOPOLOGY = """\
application: NAME
sources:
  payments: {topic: NAME.payments, key: bytes, value: json}
streams:
  by_payment:
    from: payments
    steps: [{group_by: {by: "tests.support.applications.orders:order_of", key: string}}]
  first:
    from: by_payment
    steps: [{deduplicate: 6h}]
    to: [{topic: NAME.first, key: string, value: json}]
"""

SETTINGS = (
    "worker.max_task_idle_seconds=3600",
    "worker.commit_interval_seconds=0.05",
    "worker.watermark_interval_seconds=0.1",
    "worker.session_timeout_seconds=6",
)


def first_payments(given: Sequence[Event]) -> list[str]:
    """Return the payments that are no duplicates in the order of a backfill."""
    reach = 6 * HOUR_MS
    numbered = sorted(enumerate(given), key=lambda one: (one[1].written, one[1].partition, one[0]))
    passed: list[Event] = []
    for _, event in numbered:
        if event.time + reach > event.written and not any(
            other.order == event.order and abs(other.time - event.time) < reach for other in passed
        ):
            passed.append(event)
    return sorted(event.name for event in passed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_kills_change_no_first_payment(make_pipeline: Callable[..., Pipeline], seed: int) -> None:
    pipeline = make_pipeline(topology=TOPOLOGY)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    topics = [f"{pipeline.name}.{topic}" for topic in ("payments", "first")]
    create_topics(admin, [NewTopic(topic, PARTITIONS, 1, config=KEEP) for topic in topics])
    pipeline.apply()
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
    given = [event for event in events(seed, 600) if event.topic == "payments"]
    last = [event for event in ends() if event.topic == "payments"]
    draw = random.Random(seed)
    workers = [pipeline.start_worker(settings=SETTINGS, instance=f"w{n}") for n in range(2)]
    for start in range(0, len(given), 200):
        for event in given[start : start + 200]:
            key = event.name.encode()
            producer.produce(topics[0], event.value, key, event.partition, timestamp=event.time)
        assert producer.flush(60) == 0
        number = draw.randrange(2)
        time.sleep(draw.random())
        workers[number].signal(signal.SIGKILL)
        workers[number].wait()
        workers[number] = pipeline.start_worker(settings=SETTINGS, instance=f"w{number}")
    for event in last:
        producer.produce(topics[0], event.value, b"end", event.partition, timestamp=event.time)
    assert producer.flush(60) == 0

    def found() -> list[str]:
        values = (json.loads(message.value() or b"") for message in pipeline.read(topics[1]))
        return sorted(value["id"] for value in values if value["id"] != "end")

    wanted = first_payments(given)
    assert len(wanted) < len(given)
    wait_until(lambda: len(found()) >= len(wanted), "all first payments", 60)
    time.sleep(0.5)  # for results that should not be
    assert found() == wanted
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
