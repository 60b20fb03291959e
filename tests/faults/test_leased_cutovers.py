"""Cutovers of applications whose transactional ids are leased from a pool."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from eosframework.config import KafkaSettings
from eosframework.kafka.inspect.coordinators import (
    TransactionDescription,
    describe_transaction,
    list_transactions,
)
from eosframework.kafka.inspect.wire import Wire
from tests.conftest import KafkaService
from tests.support.applications.handed_over import HandedOver
from tests.support.applications.pipeline import WorkerProcess, wait_until

RECORDS = 300
POINT = "transaction.before_commit"
SLOW_TO_EXPIRE = {"EOS_WORKER__TRANSACTION_TIMEOUT_SECONDS": "300"}
UNAVAILABLE = {"EOS_DATABASE__DSN": "postgresql://nobody@127.0.0.1:1/none"}
TASKS = 3


@pytest.fixture
def history(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path, database: str
) -> Iterator[HandedOver]:
    """History that was processed under leased ids, of which one is left in the pool."""
    name = unique_name("leased")
    leased = {"EOS_WORKER__IDS": "leased", "EOS_DATABASE__DSN": database}
    made = HandedOver(kafka.bootstrap_servers, name, tmp_path / name, environment=leased)
    try:
        assert made.command("ids add", *pool(made)).exit_code == 0
        made.make_history(RECORDS)
        yield made
    finally:
        made.stop()


def pool(history: HandedOver) -> list[str]:
    return [f"{history.name.upper()}/TX {number}" for number in range(TASKS + 1)]


def transactions(history: HandedOver) -> Mapping[str, TransactionDescription]:
    """The transactions under every id of the application that brokers know."""
    settings = KafkaSettings(bootstrap_servers=history.bootstrap_servers)
    with Wire(settings) as wire:
        known = {listed.transactional_id for listed in list_transactions(wire)}
        return {
            id_: describe_transaction(wire, id_)
            for id_ in sorted(known)
            if id_.lower().startswith(history.name)
        }


def open_ids(history: HandedOver) -> list[str]:
    return [id_ for id_, found in transactions(history).items() if found.is_open]


def sleeper_of(history: HandedOver) -> WorkerProcess:
    """A worker that is suspended in a commit, and whose session is over."""
    sleeper = history.work_early("sleeper", faults=[f"{POINT}=stop@1"], environment=SLOW_TO_EXPIRE)
    sleeper.wait_for_fault(POINT)
    wait_until(lambda: history.members() == 0, "the end of the sleeper's session")
    assert set(sleeper.ids()) == set(pool(history)[:TASKS])
    assert open_ids(history), "the sleeper has nothing open"
    return sleeper


def stays_fenced(history: HandedOver, sleeper: WorkerProcess, *, released: bool = False) -> None:
    """Continue the sleeper, which moves no position, and let live workers finish.

    After a release it takes nothing over, and may find that before it is stopped.
    """
    committed = history.committed_at(history.source)
    sleeper.signal(signal.SIGCONT)
    sleeper.wait_until_displaced()
    sleeper.signal(signal.SIGTERM)
    code = sleeper.wait()
    assert code == 0 or (released and code == 1), sleeper.log[-4000:]
    assert code == 0 or "were released after this worker had started" in sleeper.log
    assert history.committed_at(history.source) == committed
    history.finish_live()
    assert history.findings() == []


def test_a_cutover_ends_what_a_sleeper_left_open_under_a_leased_id(history: HandedOver) -> None:
    """Without its database, and without permission on ids that are derived."""
    sleeper = sleeper_of(history)
    before = transactions(history)
    killed = history.cutover(faults=[f"{POINT}=kill@1"])
    assert killed.exit_code == -signal.SIGKILL, killed.err
    assert history.committed_at(history.source) == [-1001]

    done = history.cutover("--json", environment=UNAVAILABLE)
    assert done.exit_code == 0, done.err
    assert done.json["was_before"] is False
    assert history.committed_at(history.source) == [RECORDS]
    assert open_ids(history) == []
    after = transactions(history)
    assert all(before[id_].producer_epoch < after[id_].producer_epoch for id_ in sleeper.ids())
    cutover_id = f"{history.name}:backfill.history:0"
    assert set(after) == {*sleeper.ids(), cutover_id}, "an id was inited that nobody has granted"
    stays_fenced(history, sleeper)


def test_an_id_that_was_released_is_leased_again_by_the_cutover_and_never_during_it(
    history: HandedOver,
) -> None:
    sleeper = sleeper_of(history)
    released, *_, free = pool(history)
    assert history.command("ids release", released).exit_code == 0
    assert released not in open_ids(history), "the release left something open"
    assert leases(history) == {*sleeper.ids()} - {released}

    cutover = history.start_command(
        "backfill cutover", "--job", "history", faults=[f"{POINT}=hold@1"]
    )
    faults = history.fault_directory
    wait_until((faults / f"{POINT}.fired").exists, "the cutover's commit")
    refused = history.command("ids release", released)
    assert refused.exit_code == 2, refused.err
    assert "stop them before its ids are released" in refused.error
    (faults / "release").touch()
    done = cutover.finish()
    assert done.exit_code == 0, done.err
    assert leases(history) == {*sleeper.ids()}
    assert free not in transactions(history)
    stays_fenced(history, sleeper, released=True)


def leases(history: HandedOver) -> set[str]:
    listed = history.command("ids list", "--json").json["ids"]
    return {row["id"] for row in listed if row["task"]}
