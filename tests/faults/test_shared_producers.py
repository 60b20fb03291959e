"""Partitions that share a producer share its fate, and keep what they were promised alone."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.applications.totals import Totals

RECORDS = 3000
PARTITIONS = 8
SHARED = "worker.partitions_per_producer=3"
SHORT_SESSION = "worker.session_timeout_seconds=6"
SLOW_TO_EXPIRE = "worker.transaction_timeout_seconds=300"


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """Eight partitions: three producers, of which the last has two."""
    return make_pipeline(partitions=PARTITIONS)


def started(pipeline: Pipeline, instance: str, **more: Any) -> WorkerProcess:
    settings = [SHARED, SHORT_SESSION, *more.pop("settings", ())]
    return pipeline.start_worker(instance=instance, settings=settings, **more)


def finish(pipeline: Pipeline, *settings: str) -> None:
    worker = pipeline.start_worker(
        instance="last", settings=[*settings, SHORT_SESSION], until_caught_up=True
    )
    assert worker.wait() == 0, worker.log[-4000:]


def test_shared_producers_move_whole_between_workers_that_come_and_are_killed(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(RECORDS)
    first = started(pipeline, "a", faults=["transaction.before_commit=kill@9"])
    first.wait_for_event("task_assigned", PARTITIONS)
    assert first.ids() == [f"{pipeline.name}:doubled:{block}" for block in ("0..2", "3..5", "6..8")]
    others = [started(pipeline, name) for name in ("b", "c")]
    while not first.fired("transaction.before_commit"):
        pipeline.feed(200)
        wait_until(
            lambda: pipeline.committed() == pipeline.fed or first.process.poll() is not None,
            "commits, or the kill",
        )
    assert first.wait() == -signal.SIGKILL
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the others' commits")
    assert sorted({*others[0].ids(), *others[1].ids()}) == first.ids()
    for worker in others:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-4000:]
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_zombie_with_a_shared_producer_is_fenced_on_all_of_its_partitions(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(RECORDS)
    point = "transaction.before_commit"
    zombie = started(pipeline, "one", faults=[f"{point}=stop@2"], settings=[SLOW_TO_EXPIRE])
    zombie.wait_for_fault(point)
    successor = started(pipeline, "two")
    wait_until(lambda: pipeline.committed() == RECORDS, "the successor's commit")
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == 2 * RECORDS, "the rest")
    assert not zombie.events("fenced_while_owner"), "it took its id from the successor"
    for worker in (zombie, successor):
        if worker.process.poll() is None:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0, worker.log[-4000:]
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_the_number_that_share_changes_while_nobody_runs_and_fences_those_with_the_old_one(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(RECORDS)
    point = "transaction.before_commit"
    zombie = started(pipeline, "one", faults=[f"{point}=stop@2"], settings=[SLOW_TO_EXPIRE])
    zombie.wait_for_fault(point)
    refused = pipeline.start_worker(instance="two", settings=["worker.partitions_per_producer=2"])
    assert refused.wait() == 2
    assert "a partition would have two owners" in refused.log

    def went() -> bool:
        """Whether the zombie's session is over, so that another number is accepted."""
        successor = pipeline.start_worker(instance="two", until_caught_up=True)
        return successor.wait() == 0

    wait_until(went, "a start with another number")
    assert pipeline.committed() >= RECORDS
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    if zombie.process.poll() is None:
        zombie.signal(signal.SIGTERM)
        zombie.wait()
    pipeline.feed(RECORDS)
    finish(pipeline, SHARED)
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_stores_of_tasks_that_share_a_producer_follow_its_transaction(
    kafka: Any, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The worker dies when some of them have what was committed, and some have not."""
    totals = Totals(kafka.bootstrap_servers, unique_name("state"), tmp_path / "t", partitions=4)
    settings = [*totals.keeping, SHARED]
    try:
        totals.feed(RECORDS)
        victim = totals.start_worker(
            instance="one", faults=["state.after_write=kill@6"], settings=settings
        )
        victim.wait_for_fault("state.after_write")
        assert victim.wait() == -signal.SIGKILL
        totals.feed(RECORDS)
        last = totals.start_worker(instance="one", until_caught_up=True, settings=settings)
        assert last.wait() == 0, last.log[-4000:]
        assert totals.findings() == []
    finally:
        totals.stop()
