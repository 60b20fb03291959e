"""Two hundred takeovers of each task: bounds of the worker's memory, descriptors and threads.

A member of another kind joins the worker's group and leaves it again; each time all partitions are
revoked and assigned anew. What it gets it does not read.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from confluent_kafka import Consumer

from tests.conftest import KafkaService
from tests.soak.effects import SIDES, TOPOLOGY
from tests.soak.operating import Operator
from tests.soak.recording import QUIET
from tests.soak.run import Feeder
from tests.soak.workers import SETTINGS
from tests.support.applications.pipeline import COMPRESSED, Pipeline, WorkerProcess, wait_until
from tests.support.faults.heap_report import read_report

PARTITIONS = 4
TAKEOVERS = 200
SETTLED_AFTER = 50
"""Takeovers after which caches are full: stores, compiled code, connections."""


class Figures(NamedTuple):
    """Figures of a process."""

    rss_bytes: int
    used_bytes: int
    python_blocks: int
    descriptors: int
    threads: int


ALLOWED = Figures(
    # 24 MiB were measured; with the default settings of the allocator 63.
    rss_bytes=40 * 2**20,
    used_bytes=12 * 2**20,
    python_blocks=60_000,
    # Files of stores: they come and go with compactions.
    descriptors=24,
    # Those of producers that are still being closed.
    threads=8,
)
"""By how much a figure may rise between that and the end."""


@contextmanager
def visitor(pipeline: Pipeline) -> Iterator[None]:
    """Join the worker's group, be assigned partitions, and leave."""
    assigned: list[object] = []
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": pipeline.bootstrap_servers,
            "group.id": pipeline.name,
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 60_000,
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        consumer.subscribe([pipeline.source], on_assign=lambda _, given: assigned.append(given))

        def is_member() -> bool:
            consumer.poll(0.05)
            return bool(assigned)

        wait_until(is_member, "partitions for the visitor")
        consumer.pause(consumer.assignment())
        yield


def takeovers(worker: WorkerProcess) -> int:
    """How often the worker took the task over that it has least often."""
    times = Counter(event["task"] for event in worker.events("task_assigned"))
    return min(times.values())


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_takeovers_leave_memory_descriptors_and_threads_within_bounds(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    pipeline = Pipeline(
        kafka.bootstrap_servers,
        unique_name("taken"),
        tmp_path / "pipeline",
        topology=TOPOLOGY,
        partitions=PARTITIONS,
        outputs=dict.fromkeys(SIDES, 1),
    )
    Operator(pipeline, SETTINGS).run("apply")
    heaps = tmp_path / "heaps"
    worker = pipeline.start_worker(
        instance="one",
        settings=[
            COMPRESSED,
            "kafka.properties.message.max.bytes=5000000",
            *SETTINGS,
            "worker.heartbeat_interval_seconds=0.3",
            # With an id of its own a worker refuses to start beside a member that records none.
            "worker.ids=partition",
            "worker.transaction_timeout_seconds=30",
        ],
        environment={
            "XDG_STATE_HOME": str(pipeline.directory / "host"),
            "EOS_TEST_HEAP": str(heaps),
        },
        own_group=True,
    )
    try:
        worker.wait_for_event("task_assigned", PARTITIONS)
        process = psutil.Process(worker.process.pid)
        with Feeder(pipeline, 200) as feeder:
            settled = visits(pipeline, worker, process, SETTLED_AFTER, heaps)
            least = visits(pipeline, worker, process, TAKEOVERS, heaps)
            feeder.finish()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    finally:
        pipeline.stop()
    print(f"after {SETTLED_AFTER} takeovers: {settled}, after {TAKEOVERS}: {least}")
    assert settled.used_bytes, "the worker reported no heap"
    rises = Figures(*(after - before for before, after in zip(settled, least, strict=True)))
    assert all(rise < most for rise, most in zip(rises, ALLOWED, strict=True)), rises


def visits(
    pipeline: Pipeline, worker: WorkerProcess, process: psutil.Process, until: int, heaps: Path
) -> Figures:
    """Make takeovers until a task has had so many; return the least of each figure.

    The least of the last ten visits: what is in use at one moment, such as a takeover's own
    clients, is no leak.
    """
    samples: list[Figures] = []
    while (before := takeovers(worker)) < until:
        with visitor(pipeline):
            pass
        wait_until(lambda before=before: takeovers(worker) > before, "all partitions again")
        report = read_report(heaps, process.pid)
        with process.oneshot():
            samples.append(
                Figures(
                    process.memory_info().rss,
                    report.used_bytes,
                    report.python_blocks,
                    process.num_fds(),
                    process.num_threads(),
                )
            )
        if len(samples) % 10 == 1:
            print(f"after {before + 1} takeovers: {samples[-1]}, {report}", flush=True)
    return Figures(*map(min, zip(*samples[-10:], strict=True)))
