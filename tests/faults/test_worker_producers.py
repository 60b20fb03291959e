"""Workers with one producer for all of their partitions, beside others and in each other's way."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from eosframework.application.ownership_topic import OwnershipTopic
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.processes.commands import here

RECORDS = 3000
PARTITIONS = 8
OWN_ID = "worker.ids=worker"
EACH = "worker.ids=partition"
FEW_AT_ONCE = "worker.batch_records=100"
SHORT_SESSION = "worker.session_timeout_seconds=6"
SLOW_TO_EXPIRE = "worker.transaction_timeout_seconds=300"


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    return make_pipeline(partitions=PARTITIONS)


def started(pipeline: Pipeline, instance: str, mode: str = OWN_ID, **more: Any) -> WorkerProcess:
    settings = [mode, SHORT_SESSION, FEW_AT_ONCE, *more.pop("settings", ())]
    return pipeline.start_worker(instance=instance, settings=settings, **more)


def end(*workers: WorkerProcess) -> None:
    for worker in workers:
        if worker.process.poll() is None:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0, worker.log[-4000:]


def own_id(pipeline: Pipeline, instance: str) -> str:
    return f"{pipeline.name}:worker.{pipeline.name}.{instance}:0"


def fed_and_committed(pipeline: Pipeline, records: int = RECORDS) -> None:
    pipeline.feed(records)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all commits")


def verified(pipeline: Pipeline) -> None:
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("transaction.after_send_offsets", marks=pytest.mark.exhaustive),
        "transaction.before_commit",
    ],
)
def test_a_zombie_with_an_id_of_its_own_is_fenced_by_its_entries(
    pipeline: Pipeline, point: str
) -> None:
    """It is stopped before EndTxn, after the group has checked its offsets."""
    pipeline.feed(RECORDS)
    zombie = started(pipeline, "one", faults=[f"{point}=stop@1"], settings=[SLOW_TO_EXPIRE])
    zombie.wait_for_fault(point)
    successor = started(pipeline, "two")
    wait_until(lambda: pipeline.committed() == RECORDS, "the successor's commit")
    assert zombie.ids() == [own_id(pipeline, "one")]
    assert successor.ids() == [own_id(pipeline, "two")]
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    fed_and_committed(pipeline)
    end(zombie, successor)
    verified(pipeline)


@pytest.mark.exhaustive
def test_a_killed_worker_is_followed_by_others_with_ids_of_their_own(pipeline: Pipeline) -> None:
    pipeline.feed(RECORDS)
    first = started(pipeline, "a", faults=["transaction.before_commit=kill@4"])
    first.wait_for_event("task_assigned", PARTITIONS)
    others = [started(pipeline, name) for name in ("b", "c")]
    while not first.fired("transaction.before_commit"):
        pipeline.feed(200)
        wait_until(
            lambda: pipeline.committed() == pipeline.fed or first.process.poll() is not None,
            "commits, or the kill",
        )
    assert first.wait() == -signal.SIGKILL
    fed_and_committed(pipeline)
    end(*others)
    verified(pipeline)


def test_in_a_rolling_restart_no_worker_that_is_alive_is_fenced(pipeline: Pipeline) -> None:
    running = {name: started(pipeline, name) for name in ("a", "b")}
    fed_and_committed(pipeline)
    before = list(running.values())
    for name in ("a", "b"):
        end(running[name])
        running[name] = started(pipeline, name)
        fed_and_committed(pipeline, 500)
    for worker in (*before, *running.values()):
        assert not worker.events("task_fenced"), worker.log[-3000:]
    end(*running.values())
    verified(pipeline)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("before", "after"),
    [(EACH, OWN_ID), pytest.param(OWN_ID, EACH, marks=pytest.mark.exhaustive)],
)
def test_workers_switch_one_by_one_while_others_run_the_other_way(
    pipeline: Pipeline, before: str, after: str
) -> None:
    running = {name: started(pipeline, name, before) for name in ("a", "b")}
    fed_and_committed(pipeline)
    for name in ("a", "b"):
        end(running[name])
        running[name] = started(pipeline, name, after)
        fed_and_committed(pipeline, 500)
    end(*running.values())
    verified(pipeline)


@pytest.mark.parametrize(
    ("first", "second"),
    [(EACH, OWN_ID), pytest.param(OWN_ID, EACH, marks=pytest.mark.exhaustive)],
)
def test_a_zombie_is_fenced_by_a_successor_of_the_other_kind(
    pipeline: Pipeline, first: str, second: str
) -> None:
    pipeline.feed(RECORDS)
    point = "transaction.before_commit"
    zombie = started(pipeline, "one", first, faults=[f"{point}=stop@1"], settings=[SLOW_TO_EXPIRE])
    zombie.wait_for_fault(point)
    successor = started(pipeline, "two", second)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the successor's commit")
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    fed_and_committed(pipeline)
    end(zombie, successor)
    verified(pipeline)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("ownership.before_entry", marks=pytest.mark.exhaustive),
        "ownership.after_entry",
        pytest.param("ownership.after_read", marks=pytest.mark.exhaustive),
    ],
)
def test_a_taker_that_sleeps_between_two_steps_wakes_beside_its_successor(
    pipeline: Pipeline, point: str
) -> None:
    """It wakes with entries that were removed, or are not the latest."""
    pipeline.feed(RECORDS)
    crashed = started(pipeline, "zero", faults=["transaction.before_commit=kill@1"])
    assert crashed.wait() == -signal.SIGKILL
    sleeper = started(pipeline, "one", faults=[f"{point}=stop@1"])
    sleeper.wait_for_fault(point)
    successor = started(pipeline, "two")
    wait_until(lambda: pipeline.committed() == RECORDS, "the successor's commit")
    sleeper.signal(signal.SIGCONT)
    fed_and_committed(pipeline)
    end(sleeper, successor)
    verified(pipeline)


@pytest.mark.exhaustive
def test_a_deleted_ownership_topic_stops_starts_until_apply_accepts_the_new_one(
    pipeline: Pipeline,
) -> None:
    """`apply` accepts the new one once no worker runs."""
    settings = KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)
    admin = ClusterAdmin(settings)
    worker = started(pipeline, "one")
    fed_and_committed(pipeline)
    topic = OwnershipTopic(pipeline.name, settings, admin)
    admin.delete_topics([topic.topic])
    wait_until(lambda: not admin.describe_topics([topic.topic])[topic.topic].exists, "its end")
    second = started(pipeline, "two")
    assert second.wait() == 2, second.log[-3000:]
    assert "ids that may still write are unknown" in second.log
    end(worker)
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    assert here("apply", str(pipeline.topology_file), "--set", server).exit_code == 0
    third = started(pipeline, "two")
    fed_and_committed(pipeline, 500)
    end(third)
    verified(pipeline)
