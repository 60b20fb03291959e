"""A relay killed or overtaken at any step of its cycle sends every message once, in order."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psycopg
import pytest

from tests.support.applications.outbox import OutboxWorld
from tests.support.applications.pipeline import wait_until

STEPS = [
    "relay.after_hold",
    "takeover.before_init",
    "takeover.after_init",
    "relay.after_turn",
    "relay.after_read",
    "transaction.after_begin",
    "transaction.after_produce",
    "relay.after_position",
    "transaction.before_commit",
    "transaction.after_commit",
    "relay.before_clean",
    "relay.after_clean",
]

MakeOutbox = Callable[..., OutboxWorld]


@pytest.mark.parametrize("kind", ["table", pytest.param("slot", marks=pytest.mark.exhaustive)])
def test_relays_killed_at_each_step_in_turn_lose_and_double_nothing(
    make_outbox: MakeOutbox, kind: str
) -> None:
    outbox = make_outbox(kind=kind, shards=2)
    outbox.finish()
    for step in STEPS:
        outbox.publish(40, each=4)
        relay = outbox.start_relay(faults=[f"{step}=kill@1"])
        relay.wait_for_fault(step)
        assert relay.wait() == -signal.SIGKILL
    outbox.publish(40, each=4)
    outbox.finish()
    verdict = outbox.verify()
    assert verdict.clean, verdict


def test_zombies_of_each_step_change_nothing_when_they_wake_up(make_outbox: MakeOutbox) -> None:
    """Each stands still inside a transaction until a successor has its session's rights."""
    outbox = make_outbox()
    zombies = []
    for step in (
        "relay.after_read",
        "transaction.after_produce",
        "relay.after_position",
        "transaction.before_commit",
        "transaction.after_commit",
    ):
        outbox.publish(20)
        zombie = outbox.start_relay(faults=[f"{step}=stop@2"])
        zombie.wait_for_event("shard_assigned")
        outbox.publish(20)
        zombie.wait_for_fault(step)
        outbox.end_sessions()
        zombies.append(zombie)
    successor = outbox.start_relay()
    successor.wait_for_event("shard_assigned")
    outbox.wait_for(200)
    for zombie in zombies:
        assert zombie.process.poll() is None, "the zombie ended before it was continued"
        zombie.signal(signal.SIGCONT)
    for zombie in zombies:
        wait_until(
            lambda zombie=zombie: bool(
                zombie.events("database_unavailable") or zombie.process.poll() is not None
            ),
            "the zombie noticing",
        )
    outbox.publish(50)
    outbox.wait_for(250)
    for relay in (*zombies, successor):
        relay.signal(signal.SIGTERM)
        assert relay.wait() == 0, relay.log[-3000:]
    verdict = outbox.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_relay_that_stands_still_loses_its_shard_and_stands_by_afterwards(
    make_outbox: MakeOutbox,
) -> None:
    outbox = make_outbox()
    short = ["worker.transaction_timeout_seconds=8"]
    frozen = outbox.start_relay(faults=["transaction.before_commit=stop@1"], settings=short)
    frozen.wait_for_event("shard_assigned")
    successor = outbox.start_relay(settings=short)
    successor.wait_for_event("relay_stands_by")
    outbox.publish(20)
    frozen.wait_for_fault("transaction.before_commit")
    successor.wait_for_event("relay_active")
    outbox.wait_for(20)
    frozen.signal(signal.SIGCONT)
    frozen.wait_for_event("relay_stands_by")
    outbox.publish(20)
    outbox.wait_for(40)
    assert not successor.events("task_fenced")
    for relay in (frozen, successor):
        relay.signal(signal.SIGTERM)
        assert relay.wait() == 0, relay.log[-3000:]
    verdict = outbox.verify()
    assert verdict.clean, verdict


def test_two_relays_share_the_shards_and_one_takes_over_from_the_other(
    make_outbox: MakeOutbox,
) -> None:
    outbox = make_outbox(shards=4)
    first = outbox.start_relay()
    first.wait_for_event("shard_assigned", 4)
    second = outbox.start_relay()
    second.wait_for_event("shard_assigned", 2)
    outbox.publish(200, each=5)
    outbox.wait_for(200)
    first.process.kill()
    assert first.wait() == -signal.SIGKILL
    second.wait_for_event("shard_assigned", 4)
    outbox.publish(100, each=5)
    outbox.wait_for(300)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    verdict = outbox.verify()
    assert verdict.clean, verdict


def test_a_relay_of_the_same_name_on_another_database_sends_nothing(
    make_outbox: MakeOutbox, make_database: Callable[[], str]
) -> None:
    outbox = make_outbox()
    outbox.publish(10)
    owner = outbox.start_relay()
    owner.wait_for_event("shard_assigned")
    outbox.wait_for(10)
    stranger = outbox.start_relay(dsn=make_database())
    assert stranger.wait() == 2
    assert "uses the same outbox.name" in stranger.log
    outbox.publish(10)
    outbox.wait_for(20)
    owner.signal(signal.SIGTERM)
    assert owner.wait() == 0, owner.log[-3000:]
    verdict = outbox.verify()
    assert verdict.clean, verdict


def test_a_transaction_left_open_is_waited_for_and_not_skipped(make_outbox: MakeOutbox) -> None:
    outbox = make_outbox()
    relay = outbox.start_relay()
    relay.wait_for_event("shard_assigned")
    with psycopg.connect(outbox.dsn) as long:
        outbox.publish_on(long, "long")
        outbox.publish(200, each=2)
        waiting = sum(map(len, outbox.arrived().values()))
        assert "long" not in outbox.arrived()
        long.commit()
    outbox.wait_for(201)
    assert waiting < 201
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0
    verdict = outbox.verify()
    assert verdict.clean, verdict
