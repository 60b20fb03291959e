"""A broker that dies or stands still costs time, and no record."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from eosframework.config import KafkaSettings
from eosframework.embedded import KafkaCluster, start_kafka
from eosframework.kafka.inspect.partition_log import read_log
from eosframework.kafka.inspect.transaction_trace import trace
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from tests.support.applications.pipeline import Pipeline, Verdict, wait_until

RECORDS = 4000

RESTARTS = 3

TRACED = 500
"""More transactions than a worker makes in a test."""


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


def finished(pipeline: Pipeline) -> Verdict:
    worker = pipeline.workers[0]
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all records")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    return pipeline.verify()


def finish_and_verify(pipeline: Pipeline) -> None:
    verdict = finished(pipeline)
    assert verdict.clean, verdict


@pytest.mark.slow
def test_a_worker_goes_on_after_its_broker_was_killed_and_restarted(
    own_kafka: KafkaCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A restarted broker may omit the markers of a commit that was decided (KAFKA-20734).

    If the id's next transaction aborts, it takes those records along. Then the coordinator's log
    has the commit without its marker, and the broker is killed once more; any other loss is one.
    """
    for number in range(RESTARTS):
        pipeline = running_pipeline(own_kafka, unique_name, tmp_path / str(number))
        try:
            [node], [worker] = own_kafka.nodes, pipeline.workers
            node.kill()
            assert not node.running
            worker.wait_for_event("connection_failed")
            node.start()
            pipeline.feed(RECORDS)
            verdict = finished(pipeline)
        finally:
            pipeline.stop()
        assert "FAIL [" not in worker.log
        if verdict.clean:
            return
        only_lost = Verdict(lost=verdict.lost, torn=verdict.torn)
        assert verdict == only_lost, verdict
        assert places(pipeline, verdict.lost) <= without_marker(pipeline), verdict
    pytest.fail(f"the broker omitted markers of commits at each of {RESTARTS} restarts")


def without_marker(pipeline: Pipeline) -> set[TopicPartition]:
    """The partitions in which committed transactions have no marker, by the coordinator's log."""
    with Wire(KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)) as wire:
        return {
            partition
            for name in pipeline.workers[0].ids()
            for transaction in trace(wire, name, TRACED).transactions
            if transaction.is_committed
            for partition in transaction.missing_markers
        }


def places(pipeline: Pipeline, lost: Sequence[tuple[str, int]]) -> set[TopicPartition]:
    """The partitions that have lost records, whether their transactions were committed or not."""
    found: set[TopicPartition] = set()
    with Wire(KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)) as wire:
        for partition in wire.leaders({topic for topic, _ in lost}):
            end = wire.high_watermarks([partition])[partition]
            numbers = {
                json.loads(record.value)["n"]
                for batch in read_log(wire, partition, 0, end)
                if not batch.is_control
                for record in batch.records()
                if record.value
            }
            if any(topic == partition.topic and n in numbers for topic, n in lost):
                found.add(partition)
    return found


@pytest.mark.exhaustive
@pytest.mark.slow
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
