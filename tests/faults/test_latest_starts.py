"""Where an application starts that starts at the end is decided once, whatever ends its workers."""

from __future__ import annotations

import signal

import pytest

from eosframework.application.control_topic import ControlTopic
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.records import TopicPartition
from tests.support.applications.pipeline import Pipeline, WorkerProcess

LATEST = "worker.start=latest"
FED = 12


def started(pipeline: Pipeline, *faults: str, more: tuple[str, ...] = ()) -> WorkerProcess:
    return pipeline.start_worker(instance="one", settings=[LATEST, *more], faults=faults)


def caught_up(pipeline: Pipeline, *more: str) -> None:
    worker = pipeline.start_worker(instance="one", settings=[LATEST, *more], until_caught_up=True)
    assert worker.wait() == 0, worker.log[-3000:]


def refuse_all_but(pipeline: Pipeline, first: int) -> None:
    """Expect every number from `first` on once in each output, and none before it."""
    verdict = pipeline.verify()
    before = {(topic, n * by) for topic, by in pipeline.outputs.items() for n in range(first)}
    assert set(verdict.lost) == before, verdict
    assert not verdict.duplicated, verdict
    assert not verdict.reordered, verdict


@pytest.mark.parametrize(
    "guarantee", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.exhaustive)]
)
def test_records_that_come_while_a_quiet_worker_is_restarted_are_processed(
    pipeline: Pipeline, guarantee: str
) -> None:
    more = f"worker.guarantee={guarantee}"
    pipeline.feed(FED)
    worker = started(pipeline, more=(more,))
    worker.wait_for_event("task_assigned", pipeline.partitions)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    pipeline.feed(FED)
    caught_up(pipeline, more)
    refuse_all_but(pipeline, FED)


def test_a_worker_killed_before_its_first_record_has_left_where_it_starts(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(FED)
    worker = started(pipeline, "takeover.after_assign=kill@1")
    worker.wait_for_fault("takeover.after_assign")
    assert worker.wait() == -signal.SIGKILL
    settings = KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)
    registry = ControlTopic(pipeline.name, settings, ClusterAdmin(settings)).refresh()
    wanted = {TopicPartition(pipeline.source, number) for number in range(pipeline.partitions)}
    assert registry.committed.keys() == wanted, "a lost offset would not be told of"
    pipeline.feed(FED)
    caught_up(pipeline)
    refuse_all_but(pipeline, FED)


@pytest.mark.exhaustive
def test_a_worker_that_sleeps_in_the_commit_of_its_start_changes_nothing_later(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(FED)
    zombie = started(pipeline, "transaction.before_commit=stop@1")
    zombie.wait_for_fault("transaction.before_commit")
    pipeline.feed(FED)
    successor = pipeline.start_worker(
        instance="one",
        settings=[LATEST],
        environment={"XDG_STATE_HOME": str(pipeline.directory / "other_host")},
    )
    successor.wait_for_event("task_assigned", pipeline.partitions)
    pipeline.feed(FED)
    zombie.signal(signal.SIGCONT)
    assert zombie.wait() == 3, zombie.log[-3000:]
    successor.signal(signal.SIGTERM)
    assert successor.wait() == 0, successor.log[-3000:]
    caught_up(pipeline)
    refuse_all_but(pipeline, 2 * FED)
