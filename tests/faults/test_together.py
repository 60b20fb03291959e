"""Outputs and rows that are decided together, while workers, database and brokers break."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.applications.pipeline import wait_until
from tests.support.applications.pipeline import wait_until
from tests.support.applications.together import TOGETHER, TogetherWorld

MakeTables = Callable[..., TogetherWorld]

STEPS = [
    "transaction.after_send_offsets",
    "decision.before_commit",
    "decision.after_commit",
    "transaction.before_commit",
    "transaction.after_commit",
]
AGAIN = ["settlement.after_take", "settlement.before_commit"]
"""Points that a successor reaches; the second one if it produces a decision again."""

QUICK = [
    "worker.session_timeout_seconds=6",
    "worker.transaction_timeout_seconds=10",
    "database.idle_transaction_timeout_seconds=30",
    "worker.batch_records=50",
]


@pytest.fixture
def world(make_tables: MakeTables) -> TogetherWorld:
    world = make_tables(TogetherWorld, topology=TOGETHER, outputs={"doubled": 2})
    world.apply()
    return world


@pytest.mark.parametrize("name", ["the same", "another"])
def test_workers_killed_at_each_step_lose_and_double_nothing(
    world: TogetherWorld, name: str
) -> None:
    """V1 to V3, and a successor killed in V4 and V6; the id is the same one or another one."""
    killed = 0
    for step in STEPS:
        instance = "one" if name == "the same" else f"one{step}"
        victim = world.start_worker(instance=instance, faults=[f"{step}=kill@2"], settings=QUICK)
        world.feed_until_fault(victim, step)
        assert victim.wait() == -signal.SIGKILL
        killed += 1
        for again in AGAIN if step == "decision.after_commit" else ():
            instance = "one" if name == "the same" else f"one{again}"
            taker = world.start_worker(
                instance=instance, faults=[f"{again}=kill@1"], settings=QUICK
            )
            taker.wait_for_fault(again)
            assert taker.wait() == -signal.SIGKILL
    world.feed(400)
    last = world.finish(instance="one", settings=QUICK)
    assert world.seen().clean, world.seen()
    assert killed == len(STEPS)
    assert world.nothing_is_open(), last.log[-2000:]


@pytest.mark.slow
def test_zombies_of_each_step_change_nothing_when_they_wake_up(world: TogetherWorld) -> None:
    """Each stands still until its successor, the next of them, has its partitions.

    One of them stands still while it produces the decision of its predecessor again.
    """
    zombies = []
    for number, step in enumerate(STEPS[:-1]):
        zombie = world.start_worker(
            instance=f"zombie{number}", faults=[f"{step}=stop@1"], settings=QUICK
        )
        world.feed_until_fault(zombie, step)
        zombies.append(zombie)
    world.feed(400)
    successor = world.start_worker(instance="successor", settings=QUICK)
    world.wait_for(world.fed, "doubled")
    for zombie in zombies:
        assert zombie.process.poll() is None, "the zombie ended before it was continued"
        zombie.signal(signal.SIGCONT)
    noticed = ("task_fenced", "partitions_lost", "assignment_lapsed")
    for zombie in zombies:
        wait_until(
            lambda zombie=zombie: any(map(zombie.events, noticed)), "the zombie noticing"
        )
    world.feed(400)
    world.wait_for(world.fed, "doubled")
    for worker in (*zombies, successor):
        worker.signal(signal.SIGTERM)
        worker.wait()
    assert successor.process.returncode == 0, successor.log[-3000:]
    world.finish(instance="last", settings=QUICK)
    assert world.seen().clean, world.seen()
