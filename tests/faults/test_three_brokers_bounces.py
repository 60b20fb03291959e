"""Brokers and workers are bounced, hard and clean, while a reader reads along.

The matrix of Kafka's own transactions_test.py: what a `read_committed` reader gets during the run
and what one gets afterwards are both compared with the input.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from confluent_kafka import Message

from tests.support.applications.load import ConcurrentReader, Feeder
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.servers.three_brokers import Failure, ThreeBrokers

PROGRESS = 400
"""Records committed between two bounces."""

INSTANCES = ("one", "two")

Replicated = Callable[..., Pipeline]

hard_and_clean = pytest.mark.parametrize(
    "hard", [True, pytest.param(False, marks=pytest.mark.exhaustive)], ids=["hard", "clean"]
)


@pytest.mark.exhaustive
@hard_and_clean
def test_bounced_brokers_change_nothing_for_readers(
    brokers: ThreeBrokers, replicated: Replicated, hard: bool
) -> None:
    pipeline = replicated()
    workers = {instance: pipeline.start_worker(instance=instance) for instance in INSTANCES}
    with ConcurrentReader(pipeline) as reader:
        with Feeder(pipeline):
            for node in brokers.cluster.nodes:
                makes_progress(pipeline, reader)
                bounce_broker(brokers, node.id, hard)
        agree_with_the_input(pipeline, workers, reader)


@pytest.mark.exhaustive
@hard_and_clean
def test_bounced_workers_change_nothing_for_readers(
    brokers: ThreeBrokers, replicated: Replicated, hard: bool
) -> None:
    pipeline = replicated()
    workers = {instance: pipeline.start_worker(instance=instance) for instance in INSTANCES}
    with ConcurrentReader(pipeline) as reader:
        with Feeder(pipeline):
            for instance in INSTANCES * 2:
                makes_progress(pipeline, reader)
                bounce_worker(workers[instance], hard)
                workers[instance] = pipeline.start_worker(instance=instance)
        agree_with_the_input(pipeline, workers, reader)


def bounce_broker(brokers: ThreeBrokers, node_id: int, hard: bool) -> None:
    if hard:
        brokers.fail(node_id, Failure.KILLED)
        wait_until(lambda: not brokers.leads(node_id), f"partitions of {node_id} moving away")
    else:
        brokers.node(node_id).stop()
    brokers.bring_back(node_id)


def bounce_worker(worker: WorkerProcess, hard: bool) -> None:
    if hard:
        worker.process.kill()
        worker.process.wait()
        return
    worker.wait_for_event("task_assigned")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]


def makes_progress(pipeline: Pipeline, reader: ConcurrentReader) -> None:
    """Records are committed, and the concurrent reader sees them."""
    committed, seen = pipeline.committed(), reader.count
    wait_until(lambda: pipeline.committed() > committed + PROGRESS, "commits")
    reader.read_to(seen + PROGRESS)


def agree_with_the_input(
    pipeline: Pipeline, workers: dict[str, WorkerProcess], reader: ConcurrentReader
) -> None:
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all records")
    reader.read_to(len(pipeline.outputs) * pipeline.fed)
    for worker in workers.values():
        worker.wait_for_event("task_assigned")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    final = {topic: pipeline.read(topic) for topic in pipeline.outputs}
    for read in (reader.records, final):
        verdict = pipeline.verify(read)
        assert verdict.clean, verdict
    for topic, records in final.items():
        assert places(reader.records[topic]) == places(records), topic


def places(records: list[Message]) -> dict[int, list[tuple[int | None, bytes | None]]]:
    """Offset and value of the records of each partition, in the order in which they were read."""
    found: dict[int, list[tuple[int | None, bytes | None]]] = {}
    for record in records:
        found.setdefault(record.partition() or 0, []).append((record.offset(), record.value()))
    return found
