"""A broker that dies or stands still costs time, and no record."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from eosframework.embedded import KafkaCluster, start_kafka
from tests.support.applications.pipeline import Pipeline, wait_until

RECORDS = 4000


UNFENCED = {"broker.session.timeout.ms": "600000"}
"""For a broker that stands still. Its controller would fence it, and then brokers leave out the
markers of transactions that end just then (KAFKA-20734)."""


@pytest.fixture
def own_kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker of this test's own, to be broken; the parameter is what is special about it."""
    special: dict[str, str] = getattr(request, "param", {})
    properties = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
    properties |= special
    cluster = start_kafka(tmp_path / "kafka", fast_start=True, properties=properties)
    yield cluster
    cluster.kill()


def running_pipeline(
    cluster: KafkaCluster,
    unique_name: Callable[[str], str],
    directory: Path,
    faults: Sequence[str] = (),
) -> Pipeline:
    pipeline = Pipeline(cluster.bootstrap_servers, unique_name("app"), directory / "pipeline")
    pipeline.feed(RECORDS)
    short = ["kafka.request_timeout_seconds=10", "worker.transaction_timeout_seconds=20"]
    pipeline.start_worker(settings=short, faults=faults)
    wait_until(lambda: pipeline.committed() > 0, "a first commit")
    return pipeline


def finish_and_verify(pipeline: Pipeline) -> None:
    worker = pipeline.workers[0]
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all records")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_worker_goes_on_after_its_broker_was_killed_and_restarted(
    own_kafka: KafkaCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    pipeline = running_pipeline(own_kafka, unique_name, tmp_path)
    try:
        [node] = own_kafka.nodes
        node.kill()
        assert not node.running
        node.start()
        pipeline.feed(RECORDS)
        finish_and_verify(pipeline)
    finally:
        pipeline.stop()


@pytest.mark.parametrize("own_kafka", [UNFENCED], indirect=True, ids=["unfenced"])
def test_a_commit_that_a_standing_broker_leaves_in_doubt_is_resolved_when_it_goes_on(
    own_kafka: KafkaCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The commit is sent to a broker that stands still; its frame arrives after the retries."""
    point = "transaction.before_commit"
    pipeline = running_pipeline(own_kafka, unique_name, tmp_path, [f"{point}=hold@6"])
    try:
        [node], [worker] = own_kafka.nodes, pipeline.workers
        pipeline.feed(RECORDS)
        pipeline.feed_until_fault(worker, point)
        node.suspend()
        worker.release()
        worker.wait_for_event("outcome_unknown")
        node.resume()
        worker.wait_for_event("task_recovered")
        finish_and_verify(pipeline)
    finally:
        pipeline.stop()
