"""A worker killed at any point of the cycle loses nothing, doubles nothing, tears nothing."""

from __future__ import annotations

import signal
from contextlib import suppress

import psutil
import pytest

from tests.support.applications.pipeline import Pipeline, wait_until

RECORDS = 4000


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("takeover.before_init=kill@1", marks=pytest.mark.exhaustive),
        "takeover.after_init=kill@1",
        pytest.param("takeover.after_assign=kill@1", marks=pytest.mark.exhaustive),
        pytest.param("transaction.after_begin=kill@3", marks=pytest.mark.exhaustive),
        pytest.param("transaction.after_produce=kill@3", marks=pytest.mark.exhaustive),
        pytest.param("transaction.after_send_offsets=kill@3", marks=pytest.mark.exhaustive),
        pytest.param("transaction.before_commit=kill@3", marks=pytest.mark.every_provider),
        "transaction.after_commit=kill@3",
    ],
)
def test_a_worker_killed_at_a_step_is_replaced_without_a_trace(
    pipeline: Pipeline, fault: str
) -> None:
    pipeline.feed(RECORDS)
    victim = pipeline.start_worker(instance="one", faults=[fault])
    pipeline.feed_until_fault(victim, fault.partition("=")[0])
    assert victim.wait() == -signal.SIGKILL
    pipeline.feed(RECORDS)
    pipeline.finish(instance="one")
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.parametrize(
    "point",
    ["revoke.before_commit", pytest.param("revoke.after_commit", marks=pytest.mark.exhaustive)],
)
def test_a_worker_killed_during_a_rebalance_is_replaced_without_a_trace(
    pipeline: Pipeline, point: str
) -> None:
    pipeline.feed(RECORDS)
    victim = pipeline.start_worker(
        instance="one",
        faults=[f"{point}=kill@1"],
        settings=["worker.session_timeout_seconds=6"],
    )
    victim.wait_for_event("task_assigned", 4)
    pipeline.feed(RECORDS)
    other = pipeline.start_worker(instance="two", settings=["worker.session_timeout_seconds=6"])
    victim.wait_for_fault(point)
    assert victim.wait() == -signal.SIGKILL
    other.wait_for_event("task_assigned", 4)
    other.signal(signal.SIGTERM)
    assert other.wait() == 0
    pipeline.finish(instance="two")
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_supervised_worker_killed_again_and_again_is_restarted_each_time(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(RECORDS)
    supervisor = pipeline.start_worker("--processes", "2", instance="pair")
    supervisor.wait_for_event("task_assigned", 4)
    for kills in range(1, 5):
        pipeline.feed(RECORDS // 4)
        children = psutil.Process(supervisor.process.pid).children()
        assert len(children) == 2
        children[kills % 2].kill()
        supervisor.wait_for_event("worker_died", kills)
        supervisor.wait_for_event("worker_started", 2 + kills)
        supervisor.wait_for_event("task_assigned", 4 + 2 * kills)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    pipeline.finish()
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_workers_end_whose_supervisor_is_killed_while_they_start(pipeline: Pipeline) -> None:
    """They hold the supervisor's name, so no other could be started under it.

    They stand still: whatever they would wait for, their end does not depend on it.
    """
    pipeline.feed(RECORDS)
    supervisor = pipeline.start_worker(
        "--processes", "2", instance="pair", environment={"EOS_TEST_STOPPED_CHILDREN": "1"}
    )
    supervisor.wait_for_event("worker_started", 2)
    children = psutil.Process(supervisor.process.pid).children()
    assert len(children) == 2
    wait_until(
        lambda: all(child.status() == psutil.STATUS_STOPPED for child in children),
        "children that stand still",
    )
    assert not supervisor.events("task_assigned")
    supervisor.signal(signal.SIGKILL)
    supervisor.wait()
    try:
        wait_until(lambda: all(map(ended, children)), "the children's end")
    finally:
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    pipeline.finish(instance="pair")
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
