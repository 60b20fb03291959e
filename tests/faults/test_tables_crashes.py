"""Workers that fill tables, killed or standing still at any step: each row is there once."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.applications.pipeline import wait_until
from tests.support.applications.tables import BOTH_KINDS, TablesWorld

MakeTables = Callable[..., TablesWorld]

STEPS = ["table_writer.after_claim", "table_writer.before_commit", "table_writer.after_commit"]
QUICK = [
    "worker.session_timeout_seconds=6",
    "database.idle_transaction_timeout_seconds=2",
    "database.batch_rows=100",
    "worker.batch_records=50",
]


@pytest.mark.every_provider
def test_workers_killed_at_each_step_in_turn_lose_and_double_nothing(
    make_tables: MakeTables,
) -> None:
    """Before and after the database's commit, and between the database and Kafka."""
    world = make_tables()
    world.see("CREATE TABLE numbers (n bigint)")
    world.apply()
    for step in STEPS:
        world.feed(400)
        victim = world.start_worker(instance="one", faults=[f"{step}=kill@1"], settings=QUICK)
        victim.wait_for_fault(step)
        assert victim.wait() == -signal.SIGKILL
    world.feed(400)
    world.finish(instance="one")
    assert world.kept().clean, world.kept()
    assert world.count() == 1600


@pytest.mark.exhaustive
def test_a_worker_killed_while_it_gives_partitions_up_is_replaced_without_a_trace(
    make_tables: MakeTables,
) -> None:
    world = make_tables()
    world.see("CREATE TABLE numbers (n bigint)")
    world.apply()
    world.feed(400)
    victim = world.start_worker(
        instance="one", faults=["table_writer.before_revoke=kill@1"], settings=QUICK
    )
    world.wait_for(400)
    world.feed(400)
    successor = world.start_worker(instance="two", settings=QUICK)
    victim.wait_for_fault("table_writer.before_revoke")
    assert victim.wait() == -signal.SIGKILL
    world.wait_for(800)
    successor.signal(signal.SIGTERM)
    assert successor.wait() == 0, successor.log[-3000:]
    assert world.kept().clean, world.kept()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_zombies_of_each_step_change_nothing_when_they_wake_up(make_tables: MakeTables) -> None:
    """Each stands still until its successor, the next of them, has its partitions and rows."""
    world = make_tables()
    world.see("CREATE TABLE numbers (n bigint)")
    world.apply()
    zombies = []
    for number, step in enumerate(STEPS):
        world.feed(400)
        zombie = world.start_worker(
            instance=f"zombie{number}", faults=[f"{step}=stop@1"], settings=QUICK
        )
        zombie.wait_for_fault(step)
        zombies.append(zombie)
    world.feed(400)
    successor = world.start_worker(instance="successor", settings=QUICK)
    world.wait_for(1600)
    for zombie in zombies:
        assert zombie.process.poll() is None, "the zombie ended before it was continued"
        zombie.signal(signal.SIGCONT)
    for zombie in zombies:
        wait_until(
            lambda zombie=zombie: bool(
                zombie.process.poll() is not None
                or zombie.events("partitions_lost")
                or zombie.events("partition_overtaken")
                or zombie.events("database_unavailable")
            ),
            "the zombie noticing",
        )
    world.feed(400)
    world.wait_for(2000)
    for worker in (*zombies, successor):
        worker.signal(signal.SIGTERM)
        worker.wait()
    assert successor.process.returncode == 0, successor.log[-3000:]
    assert world.kept().clean, world.kept()
    assert world.count() == 2000


def test_a_supervised_child_of_either_kind_that_is_killed_is_restarted(
    make_tables: MakeTables,
) -> None:
    world = make_tables(topology=BOTH_KINDS)
    world.apply()
    world.feed(400)
    supervisor = world.start_worker(
        faults=["transaction.before_commit=kill@2", "table_writer.before_commit=kill@2"],
        settings=QUICK,
    )
    for point in ("transaction.before_commit", "table_writer.before_commit"):
        world.feed_until_fault(supervisor, point)
    world.feed(400)
    world.wait_for(world.fed, "doubled")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0, supervisor.log[-3000:]
    assert len(supervisor.events("worker_died")) >= 2
    assert world.kept("doubled", 2).clean, world.kept("doubled", 2)
