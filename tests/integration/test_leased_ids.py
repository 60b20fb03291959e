"""Workers whose transactional ids are leased from a pool in a database."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg
import pytest

from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.inspect.coordinators import describe_transaction, list_transactions
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.wire import Wire
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.processes.commands import Folder
from tests.support.processes.programs import Finished

RECORDS = 1000
SHORT_SESSION = ["worker.session_timeout_seconds=6"]
SLOW_TO_EXPIRE = ["worker.transaction_timeout_seconds=300"]


class Leasing:
    """A pipeline of two partitions whose workers lease their ids."""

    def __init__(self, pipeline: Pipeline, dsn: str) -> None:
        self.pipeline = pipeline
        self.dsn = dsn
        self.pool = [f"{pipeline.name.upper()}/TX {n}" for n in range(3)]
        self._settings = KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)

    def run(self, command: str, *arguments: str, kind: str = "leased") -> Finished:
        words = command.split()
        return Folder(self.pipeline.directory, self.pipeline.bootstrap_servers).run(
            *words,
            *([] if words[0] == "txn" else [str(self.pipeline.topology_file)]),
            *arguments,
            environment={"EOS_DATABASE__DSN": self.dsn, "EOS_WORKER__IDS": kind},
        )

    def fill(self) -> None:
        done = self.run("ids add", *self.pool)
        assert done.exit_code == 0, done.err

    def start(
        self, instance: str, *, dsn: str | None = None, settings: Sequence[str] = (), **more: Any
    ) -> WorkerProcess:
        return self.pipeline.start_worker(
            instance=instance,
            settings=["worker.ids=leased", *settings],
            environment={"EOS_DATABASE__DSN": dsn or self.dsn},
            **more,
        )

    def leases(self) -> dict[int, str]:
        """The id of each partition, as the table has it."""
        with psycopg.connect(self.dsn) as connection:
            return dict(
                connection.execute(
                    "SELECT partition, id FROM eosframework.transactional_ids "
                    "WHERE sub_topology IS NOT NULL"
                ).fetchall()
            )

    def known_to_brokers(self) -> set[str]:
        with Wire(self._settings) as wire:
            found = {listed.transactional_id for listed in list_transactions(wire)}
        return {id_ for id_ in found if id_.lower().startswith(self.pipeline.name)}

    def state(self, id_: str) -> TxnState:
        with Wire(self._settings) as wire:
            return describe_transaction(wire, id_).state

    def epochs(self, ids: Iterable[str]) -> list[int]:
        """How often each id was taken, more or less: every taking raises it."""
        with Wire(self._settings) as wire:
            return [describe_transaction(wire, id_).producer_epoch for id_ in sorted(ids)]

    def group_is_empty(self) -> bool:
        return not ClusterAdmin(self._settings).describe_group(self.pipeline.name).client_ids

    def complaints(self) -> set[str]:
        """The doctor's checks that find something."""
        return {finding["check"] for finding in self.run("doctor", "--json").json["findings"]}

    def wait_for(self, records: int) -> None:
        wait_until(lambda: self.pipeline.committed() == records, f"{records} offsets")

    def stop(self, *workers: WorkerProcess) -> None:
        for worker in workers:
            worker.signal(signal.SIGTERM)
        assert [worker.wait() for worker in workers] == [0] * len(workers)


def ids_of(worker: WorkerProcess) -> set[str]:
    return {str(event["transactional_id"]) for event in worker.events("task_assigned")}


@pytest.fixture
def leasing(make_pipeline: Callable[..., Pipeline], database: str) -> Leasing:
    return Leasing(make_pipeline(partitions=2), database)


def test_workers_write_under_the_ids_of_the_table_and_keep_them(leasing: Leasing) -> None:
    pipeline = leasing.pipeline
    refused = leasing.run("run-worker")
    assert refused.exit_code == 2
    assert "no id left for 2 of 2 tasks" in refused.error
    assert "eosframework ids add APP ID" in refused.error
    assert "leased-ids" in leasing.complaints()
    leasing.fill()
    planned = leasing.run("plan", "--json").json
    assert planned["transactional_ids"] == leasing.pool[:2]
    assert f"TransactionalId {leasing.pool[1]}: Write" in planned["acls"]
    assert leasing.leases() == {}

    pipeline.feed(RECORDS)
    workers = [leasing.start(name) for name in ("one", "two")]
    leasing.wait_for(RECORDS)
    leased = leasing.leases()
    assert set(leased.values()) == set(leasing.pool[:2]) == leasing.known_to_brokers()
    assert not leasing.complaints() & {"leased-ids", "foreign-ids", "transactional-id-acls"}
    told = leasing.run("ids release", leased[0])
    assert told.exit_code == 2
    assert "stop them before its ids are released" in told.error
    listed = leasing.run("txn list", pipeline.name, "--json").json
    assert {
        row["transactional_id"]: row["owner"]["partition"] for row in listed["transactions"]
    } == {id_: partition for partition, id_ in leased.items()}
    leasing.stop(*workers)

    pipeline.feed(RECORDS)
    away = leasing.start("one", dsn="postgresql://nobody@127.0.0.1:1/none", until_caught_up=True)
    assert away.wait() == 0, away.log[-3000:]
    assert away.events("ids_taken_from_control_topic")
    assert ids_of(away) == set(leased.values())
    assert leasing.leases() == leased
    assert pipeline.verify().clean


def test_a_killed_worker_is_fenced_by_the_id_it_had(leasing: Leasing) -> None:
    pipeline = leasing.pipeline
    leasing.fill()
    pipeline.feed(RECORDS)
    point = "transaction.after_send_offsets"
    killed = leasing.start("one", faults=[f"{point}=kill@2"], settings=SLOW_TO_EXPIRE)
    killed.wait_for_fault(point)
    killed.wait()
    successor = leasing.start("one", settings=SLOW_TO_EXPIRE)
    leasing.wait_for(RECORDS)
    assert ids_of(successor) == ids_of(killed) == set(leasing.pool[:2])
    leasing.stop(successor)
    assert pipeline.verify().clean


def test_leasing_ids_fences_a_zombie_that_derives_them(leasing: Leasing) -> None:
    pipeline = leasing.pipeline
    leasing.fill()
    pipeline.feed(RECORDS)
    point = "transaction.before_commit"
    zombie = pipeline.start_worker(
        instance="one", faults=[f"{point}=stop@1"], settings=[*SHORT_SESSION, *SLOW_TO_EXPIRE]
    )
    zombie.wait_for_fault(point)
    wait_until(leasing.group_is_empty, "the end of the zombie's session")
    open_ids = {id_ for id_ in ids_of(zombie) if leasing.state(id_) is TxnState.ONGOING}
    assert open_ids, "the zombie has nothing open"
    epochs = leasing.epochs(ids_of(zombie))

    successor = leasing.start("two", settings=[*SHORT_SESSION, *SLOW_TO_EXPIRE])
    leasing.wait_for(RECORDS)
    assert TxnState.ONGOING not in {leasing.state(id_) for id_ in open_ids}
    taken = zip(epochs, leasing.epochs(ids_of(zombie)), strict=True)
    assert all(before < after for before, after in taken)
    assert zombie.process.poll() is None, "the zombie ended before it was continued"
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    zombie.process.kill()
    pipeline.feed(RECORDS)
    leasing.wait_for(2 * RECORDS)
    leasing.stop(successor)
    assert pipeline.verify().clean


@pytest.mark.exhaustive
def test_a_release_fences_who_slept_and_derived_ids_fence_leased_ones(leasing: Leasing) -> None:
    pipeline = leasing.pipeline
    leasing.fill()
    pipeline.feed(RECORDS)
    point = "transaction.before_commit"
    zombie = leasing.start(
        "one", faults=[f"{point}=stop@1"], settings=[*SHORT_SESSION, *SLOW_TO_EXPIRE]
    )
    zombie.wait_for_fault(point)
    wait_until(leasing.group_is_empty, "the end of the zombie's session")
    leased = leasing.leases()
    open_ids = [id_ for id_ in leased.values() if leasing.state(id_) is TxnState.ONGOING]
    assert open_ids, "the zombie has nothing open"
    released = open_ids[0]
    others = sorted({*leased.values()} - {released})
    done = leasing.run("ids release", released, "--json")
    assert done.exit_code == 0, done.err
    assert [row["id"] for row in done.json["released"]] == [released]
    listed = leasing.run("ids list", "--json").json["ids"]
    assert [row["id"] for row in listed if row["task"]] == others
    assert leasing.state(released) is not TxnState.ONGOING
    epochs = leasing.epochs(others)

    derived = pipeline.start_worker(instance="two", settings=SLOW_TO_EXPIRE)
    leasing.wait_for(RECORDS)
    taken = zip(epochs, leasing.epochs(others), strict=True)
    assert all(before < after for before, after in taken)
    assert not ids_of(derived) & set(leasing.pool)
    zombie.process.kill()
    leasing.stop(derived)
    assert pipeline.verify().clean
