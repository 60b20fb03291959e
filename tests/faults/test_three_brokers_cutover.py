"""The coordinator of a transaction, or of a group, fails in the middle of a cutover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from eosframework.kafka.inspect.formats import CONSUMER_OFFSETS, TxnState
from tests.support.applications.handed_over import JOB, HandedOver
from tests.support.applications.pipeline import wait_until
from tests.support.processes.programs import Finished, Program
from tests.support.servers.three_brokers import REPLICAS, Failure, ThreeBrokers

RECORDS = 300
NOTHING = -1001
SLOW_TO_EXPIRE = {
    "EOS_WORKER__TRANSACTION_TIMEOUT_SECONDS": "300",
    "EOS_WORKER__SESSION_TIMEOUT_SECONDS": "45",
}
"""The default session outlasts the failure of a coordinator."""

C3_ENDED = "cutover.after_init"
C5_COMMITS = "transaction.before_commit"


class Role(StrEnum):
    """The coordinator that fails."""

    TRANSACTION = "transaction"
    GROUP = "group"

    def of(self, brokers: ThreeBrokers, name: str) -> int:
        """The broker that has this role in the cutover of an application."""
        if self is Role.GROUP:
            return brokers.group_coordinator(name)
        return brokers.transaction_coordinator(id_of(name))


def id_of(application: str) -> str:
    return f"{application}:backfill.{JOB}:0"


@dataclass
class HeldCutover:
    """A cutover that stands still at a point."""

    history: HandedOver
    process: Program

    def release(self) -> None:
        assert self.process.poll() is None, "it was not held"
        (self.history.fault_directory / "release").touch()

    def ends_as_a_whole(self, ended: Finished) -> None:
        """All of it took place or nothing; the repetition completes it, and live workers resume."""
        at = {topic: self.history.committed_at(topic) for topic in sources(self.history)}
        done = self.history.cutover("--json")
        assert done.exit_code == 0, done.err
        expected = {
            topic: [p["offset"] for p in done.json["positions"] if p["topic"] == topic]
            for topic in at
        }
        nothing = {topic: [NOTHING] * len(found) for topic, found in at.items()}
        assert at in (expected, nothing)
        assert done.json["was_before"] is (at == expected)
        assert ended.exit_code != 0 or at == expected, ended.err
        self.history.finish_live()
        assert self.history.findings() == []


def sources(history: HandedOver) -> list[str]:
    return [history.source, *(one.topic for one in history.graph.repartitions)]


HoldAt = Callable[[str], HeldCutover]


@pytest.fixture
def held_at(
    brokers: ThreeBrokers, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[HoldAt]:
    """Process a history, and hold its cutover at a point."""
    name = unique_name("handed")
    history = HandedOver(
        brokers.bootstrap_servers,
        name,
        tmp_path / name,
        replication_factor=REPLICAS,
        environment=SLOW_TO_EXPIRE,
    )

    def hold(point: str) -> HeldCutover:
        history.make_history(RECORDS)
        process = history.start_command(
            "backfill cutover", "--job", JOB, faults=[f"{point}=hold@1"]
        )
        fired = history.fault_directory / f"{point}.fired"
        wait_until(fired.exists, f"a cutover at {point}")
        return HeldCutover(history, process)

    yield hold
    history.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "role", "failure"),
    [
        (C3_ENDED, Role.GROUP, Failure.KILLED),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                (C5_COMMITS, Role.TRANSACTION, Failure.KILLED),
                (C3_ENDED, Role.TRANSACTION, Failure.KILLED),
                (C5_COMMITS, Role.GROUP, Failure.KILLED),
                (C5_COMMITS, Role.TRANSACTION, Failure.STOPPED),
                (C3_ENDED, Role.GROUP, Failure.STOPPED),
            )
        ),
    ],
)
def test_a_cutover_whose_coordinator_fails_takes_place_as_a_whole_and_once(
    brokers: ThreeBrokers, held_at: HoldAt, point: str, role: Role, failure: Failure
) -> None:
    """Two brokers are enough to end it, and the third one changes nothing when it is back."""
    held = held_at(point)
    victim = role.of(brokers, held.history.name)
    has_three_replicas(brokers, held.history)

    brokers.fail(victim, failure)
    held.release()
    ended = held.process.finish()
    # A join request that a suspended coordinator answers late may fence the cutover.
    assert ended.exit_code == 0 or failure is Failure.STOPPED, ended.err
    wait_until(
        lambda: role.of(brokers, held.history.name) not in (victim, -1),
        f"another coordinator of the {role}",
    )
    brokers.bring_back(victim)
    held.ends_as_a_whole(ended)


@pytest.mark.exhaustive
def test_a_new_coordinator_finishes_a_cutover_that_the_old_one_had_only_prepared(
    brokers: ThreeBrokers, held_at: HoldAt
) -> None:
    """The marker in the control topic needs three replicas in sync while there are two."""
    held = held_at(C5_COMMITS)
    transaction = brokers.transaction(id_of(held.history.name))
    [control] = [p for p in transaction.partitions if p.topic != CONSUMER_OFFSETS]
    assert control.topic == f"{held.history.name}-control"
    before = brokers.ask(lambda wire: wire.last_stable_offsets([control]))
    wait_until(
        lambda: brokers.ask(lambda wire: wire.high_watermarks([control])) != before,
        "the delivery of the cutover's entries",
    )
    brokers.require_in_sync(control.topic, REPLICAS)
    needed = {transaction.coordinator_id, brokers.leader(*control)}
    bystander = next(node.id for node in brokers.cluster.nodes if node.id not in needed)
    brokers.fail(bystander, Failure.STOPPED)
    wait_until(lambda: bystander not in brokers.in_sync(*control), "a replica out of sync")
    held.release()
    name = id_of(held.history.name)
    wait_until(
        lambda: brokers.transaction(name).state is TxnState.PREPARE_COMMIT,
        "a prepared commit",
    )

    brokers.fail(transaction.coordinator_id, Failure.KILLED)
    brokers.resume(bystander)
    assert brokers.transaction(name).state is TxnState.PREPARE_COMMIT
    brokers.require_in_sync(control.topic, REPLICAS - 1)
    ended = held.process.finish()
    assert ended.exit_code == 0, ended.err
    assert brokers.transaction(name).coordinator_id != transaction.coordinator_id
    brokers.bring_back(transaction.coordinator_id)
    held.ends_as_a_whole(ended)


def has_three_replicas(brokers: ThreeBrokers, history: HandedOver) -> None:
    for topic in [*sources(history), f"{history.name}-control", *history.outputs]:
        assert brokers.replicas(topic) == {REPLICAS}, topic
