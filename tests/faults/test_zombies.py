"""A worker that was stopped and comes back cannot write what its successor has written."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.inspect.coordinators import TransactionDescription, describe_transaction
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.wire import Wire
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.processes.commands import here

RECORDS = 4000
SHORT_SESSION = ["worker.session_timeout_seconds=6"]
SLOW_TO_EXPIRE = ["worker.transaction_timeout_seconds=300"]
"""One that stands still for longer cannot tell a successor from its own timeout."""


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("transaction.after_produce", marks=pytest.mark.exhaustive),
        pytest.param("transaction.after_send_offsets", marks=pytest.mark.exhaustive),
        pytest.param("transaction.before_commit", marks=pytest.mark.every_provider),
    ],
)
def test_a_zombie_is_fenced_and_its_outputs_stay_invisible(pipeline: Pipeline, point: str) -> None:
    pipeline.feed(RECORDS)
    zombie = pipeline.start_worker(
        instance="one", faults=[f"{point}=stop@3"], settings=[*SHORT_SESSION, *SLOW_TO_EXPIRE]
    )
    pipeline.feed_until_fault(zombie, point)
    successor = pipeline.start_worker(instance="two", settings=SHORT_SESSION)
    successor.wait_for_event("task_assigned", 4)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the successor's commit")
    assert zombie.process.poll() is None, "the zombie ended before it was continued"
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the rest")
    as_owner = ("transaction_expired", "fenced_while_owner")
    assert not any(map(zombie.events, as_owner)), "it took its id from the successor"
    for worker in (zombie, successor):
        if worker.process.poll() is None:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_second_worker_with_the_same_identity_ends_the_first(pipeline: Pipeline) -> None:
    """On another host: the lock that refuses it on one host is not there."""
    pipeline.feed(RECORDS)
    first = pipeline.start_worker(instance="one")
    first.wait_for_event("task_assigned", 4)
    second = pipeline.start_worker(
        instance="one", environment={"XDG_STATE_HOME": str(pipeline.directory / "other_host")}
    )
    second.wait_for_event("task_assigned", 4)
    assert first.wait() == 3, first.log[-3000:]
    assert "another" in first.log
    pipeline.feed(RECORDS)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    pipeline.finish(instance="one")
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_worker_whose_transaction_expired_goes_on_as_the_owner(pipeline: Pipeline) -> None:
    pipeline.feed(RECORDS)
    worker = pipeline.start_worker(
        instance="one",
        faults=["transaction.before_commit=stop@3"],
        settings=["worker.transaction_timeout_seconds=6"],
    )
    pipeline.feed_until_fault(worker, "transaction.before_commit")
    wait_until(lambda: is_aborted(pipeline), "the broker's abort of what was open")
    worker.signal(signal.SIGCONT)
    worker.wait_for_event("task_recovered")
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all records")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert worker.events("transaction_expired") or worker.events("outcome_resolved")
    assert not worker.events("successor_took_over")
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_worker_that_sleeps_after_a_recovery_keeps_the_membership_that_it_had(
    pipeline: Pipeline,
) -> None:
    """Its group is empty meanwhile: brokers would accept offsets without a generation."""
    pipeline.feed(RECORDS)
    zombie = pipeline.start_worker(
        instance="one",
        faults=[f"takeover.after_assign=stop@{pipeline.partitions + 1}"],
        settings=[*SHORT_SESSION, *SLOW_TO_EXPIRE],
    )
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all records")
    servers = {"bootstrap.servers": pipeline.bootstrap_servers}
    [own_id] = zombie.ids()
    Producer({**servers, "transactional.id": own_id}).init_transactions(60)
    pipeline.feed_until_fault(zombie, "takeover.after_assign")
    assert zombie.events("task_fenced"), "nothing was aborted"
    admin = ClusterAdmin(KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers))
    wait_until(lambda: not admin.describe_group(pipeline.name).members, "its session's end")
    pipeline.feed(RECORDS)
    pipeline.finish(instance="two")
    assert not admin.describe_group(pipeline.name).members
    pipeline.feed(RECORDS)
    zombie.signal(signal.SIGCONT)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the rest")
    assert zombie.events("partitions_lost"), "it went on as if it had been a member all the time"
    zombie.signal(signal.SIGTERM)
    assert zombie.wait() == 0
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
def test_a_worker_that_sleeps_in_its_commit_is_fenced_before_positions_are_set(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """Its session expires, so it is no member; its offsets were checked while it was one."""
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(10)
    pipeline.finish(instance="first")
    pipeline.feed(10)
    zombie = pipeline.start_worker(
        instance="zombie",
        faults=["transaction.before_commit=stop@1"],
        settings=[*SHORT_SESSION, *SLOW_TO_EXPIRE],
    )
    zombie.wait_for_fault("transaction.before_commit")
    # Seen here, so that no command fences it before the one that must.
    admin = ClusterAdmin(KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers))
    wait_until(lambda: not admin.describe_group(pipeline.name).members, "its session's end")
    assert is_open(pipeline), "its transaction ended by itself"
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    words = (str(pipeline.topology_file), f"{pipeline.source}[0]=5", "--set", server)
    done = here("positions", "set", *words)
    assert done.exit_code == 0, done.err
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    wait_until(lambda: pipeline.committed() == 20, "what is read from the position on")
    zombie.signal(signal.SIGTERM)
    assert zombie.wait() in (0, 3), zombie.log[-3000:]
    verdict = pipeline.verify()
    again = {(topic, n * by) for topic, by in pipeline.outputs.items() for n in range(5, 10)}
    assert set(verdict.duplicated) == again, "read again were 5 to 9 of those that were committed"
    assert not verdict.lost
    assert not verdict.torn


def transactions_of(pipeline: Pipeline) -> list[TransactionDescription]:
    """What the coordinators say of the workers' transactions."""
    with Wire(KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)) as wire:
        ids = {id_ for worker in pipeline.workers for id_ in worker.ids()}
        return [describe_transaction(wire, id_) for id_ in sorted(ids)]


def is_open(pipeline: Pipeline) -> bool:
    """Whether a transaction is open; of its records the brokers may have none yet."""
    return any(one.is_open for one in transactions_of(pipeline))


def is_aborted(pipeline: Pipeline) -> bool:
    """Whether a transaction was aborted, and none is open."""
    found = transactions_of(pipeline)
    return not any(one.is_open for one in found) and TxnState.COMPLETE_ABORT in {
        one.state for one in found
    }
