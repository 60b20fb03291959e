"""Large records that wait: a worker's memory is bounded, and each is processed exactly once."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.pipeline import KEEP, Pipeline, WorkerProcess, number_in
from tests.support.processes.programs import megabytes
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

FOUR_SOURCES = """\
application: NAME
sources:
  a: {topic: NAME.in, key: bytes, value: json}
  b: {topic: NAME.b, key: bytes, value: json}
  c: {topic: NAME.c, key: bytes, value: json}
  d: {topic: NAME.d, key: bytes, value: json}
streams:
  doubled:
    from: [a, b, c, d]
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.doubled, value: json}]
"""

RECORD_BYTES = 1_000_000 - 1000
RECORDS = 180
LAST = 10_000
"""Number and time of records that stay, since nothing comes behind them."""

QUEUE_MEGABYTES = 32
ALLOWED_MEGABYTES = 110
"""The queue, what librdkafka fetches ahead, twice, and what the allocator keeps; 180 records have
180 MB."""


def feed(pipeline: Pipeline) -> None:
    """Write large records to three of the topics, each later than those before."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers, "linger.ms": 0})
    topics = [f"{pipeline.name}.{letter}" for letter in ("in", "b", "c")]
    padding = "x" * RECORD_BYTES
    for number in range(RECORDS):
        value = json.dumps({"n": number, "padding": padding}).encode()
        producer.produce(topics[number % 3], value, b"k", 0, timestamp=number + 1)
        producer.poll(0)
        if number % 30 == 29:
            assert producer.flush(60) == 0
    for topic in topics:
        producer.produce(topic, json.dumps({"n": LAST}).encode(), b"k", 0, timestamp=LAST)
    assert producer.flush(60) == 0


def feed_last(pipeline: Pipeline) -> None:
    """Write to the topic that others wait for."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
    last = json.dumps({"n": LAST}).encode()
    producer.produce(f"{pipeline.name}.d", last, b"k", 0, timestamp=LAST)
    assert producer.flush(60) == 0


@dataclass
class Steady:
    """A process whose memory has stopped growing for ten looks in a row."""

    pid: int
    most: int = 0
    looks: int = 0

    def is_reached(self) -> bool:
        size = megabytes(self.pid, "VmRSS")
        self.looks = 0 if size > self.most else self.looks + 1
        self.most = max(self.most, size)
        return self.looks >= 10


def test_large_records_that_wait_for_an_empty_partition_take_no_more_memory_than_allowed(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(topology=FOUR_SOURCES, partitions=1, outputs={"doubled": 2})
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    create_topics(admin, [NewTopic(f"{pipeline.name}.{x}", 1, 1, config=KEEP) for x in "bcd"])
    feed(pipeline)
    settings = [
        "worker.max_task_idle_seconds=3600",
        f"worker.queue_megabytes={QUEUE_MEGABYTES}",
    ]
    worker = pipeline.start_worker(settings=settings)
    worker.wait_for_event("task_assigned")
    before = megabytes(worker.process.pid, "VmRSS")
    worker.wait_for_event("partitions_held_back")
    wait_until(Steady(worker.process.pid).is_reached, "the worker fetching no more")
    assert not pipeline.read(f"{pipeline.name}.doubled")
    feed_last(pipeline)

    def done() -> bool:
        written = pipeline.read(f"{pipeline.name}.doubled")
        return sum(number_in(message) < LAST for message in written) >= RECORDS

    wait_until(done, "all large records")
    most = megabytes(worker.process.pid, "VmHWM")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    written = [number_in(message) for message in pipeline.read(f"{pipeline.name}.doubled")]
    assert [n for n in written if n < LAST] == [2 * n for n in range(RECORDS)]
    print(f"before {before} MB, at most {most} MB")
    assert most - before < ALLOWED_MEGABYTES


HELD = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps:
      - {map_values: "tests.support.applications.functions:wait_for_release"}
      - {map_values: "tests.support.applications.functions:double"}
    to: [{topic: NAME.doubled, value: json}]
"""

HUGE_BYTES = 300_000_000


def is_unpacked(worker: WorkerProcess, before_megabytes: int) -> bool:
    """Return whether a third of the huge record is in the worker's memory."""
    grown = megabytes(worker.process.pid, "VmRSS") - before_megabytes
    return grown > HUGE_BYTES // 3_000_000


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", ["while it is unpacked", "in its function"])
def test_a_worker_that_is_stopped_at_a_record_of_300_megabytes_ends_in_time_and_loses_nothing(
    make_pipeline: Callable[..., Pipeline], moment: str
) -> None:
    pipeline = make_pipeline(topology=HELD, partitions=1, outputs={"doubled": 2})
    worker = pipeline.start_worker(settings=["worker.stop_deadline_seconds=30"])
    worker.wait_for_event("task_assigned")
    before = megabytes(worker.process.pid, "VmRSS")
    producer = Producer(
        {
            "bootstrap.servers": pipeline.bootstrap_servers,
            "compression.type": "gzip",
            "message.max.bytes": 2 * HUGE_BYTES,
            "queue.buffering.max.kbytes": HUGE_BYTES // 500,
        }
    )
    for n in (1, 13, 20):
        padding = "x" * HUGE_BYTES if n == 13 else ""
        value = json.dumps({"n": n, "padding": padding})
        producer.produce(pipeline.source, value, b"k", 0, timestamp=1_700_000_000_000 + n)
        assert producer.flush(120) == 0
    if moment == "in its function":
        worker.wait_for_fault("function")
        worker.signal(signal.SIGTERM)
        worker.wait_for_event("stop_requested")
        worker.release()
    else:
        worker.release()
        wait_until(partial(is_unpacked, worker, before), "the record in memory")
        worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert "has been stuck" not in worker.log
    again = pipeline.start_worker(until_caught_up=True)
    again.release()
    assert again.wait() == 0, again.log[-3000:]
    written = [number_in(message) for message in pipeline.read(f"{pipeline.name}.doubled")]
    assert written == [2, 26, 40]
