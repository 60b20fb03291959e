"""A relay through everything that becomes of databases and brokers.

Where the database comes into another history the relay sends nothing and says so, and `reconcile`
settles it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from eosframework.embedded import PostgresServer, start_kafka, start_postgres
from eosframework.embedded.postgres_programs import give_to_account
from eosframework.embedded.postgres_server import data_of
from tests.support.applications.outbox import OutboxWorld
from tests.support.applications.pipeline import wait_until
from tests.support.processes.programs import Finished
from tests.support.servers import debian_postgres

MakeOutbox = Callable[..., OutboxWorld]

OWN = {"max_prepared_transactions": "5", "wal_level": "logical"}
KEEP_SENT = ["outbox.keep_seconds=1000"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that this test may break."""
    with start_postgres(tmp_path / "own", settings=OWN) as own:
        yield own


def test_a_relay_goes_on_after_its_database_was_killed_and_restarted(
    make_outbox: MakeOutbox, server: PostgresServer
) -> None:
    outbox = make_outbox(dsn=server.dsn)
    relay = outbox.start_relay()
    relay.wait_for_event("shard_assigned")
    outbox.publish(50, each=5)
    outbox.wait_for(50)
    server.kill()
    relay.wait_for_event("database_unavailable")
    server.start()
    outbox.publish(50, each=5)
    outbox.wait_for(100)
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0
    verdict = outbox.verify()
    assert verdict.clean, verdict


def test_what_a_crash_could_take_back_is_not_sent(make_outbox: MakeOutbox, tmp_path: Path) -> None:
    """Commits that are not waited for reach the disk ten seconds later here."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s"}
    with start_postgres(tmp_path / "own", settings=settings) as server:
        outbox = make_outbox(dsn=server.dsn)
        relay = outbox.start_relay(settings=KEEP_SENT)
        relay.wait_for_event("shard_assigned")
        for count in range(10, 60, 10):
            outbox.publish(10)
            outbox.wait_for(count)
        server.kill()
        relay.wait_for_event("database_unavailable")
        server.start()
        outbox.publish(10)
        outbox.wait_for(60)
        with psycopg.connect(server.dsn) as connection:
            rows = connection.execute("SELECT value FROM eosframework.outbox").fetchall()
        kept = {value.decode() for (value,) in rows}
        sent = {value for values in outbox.arrived().values() for value in values}
        assert sent <= kept
        relay.signal(signal.SIGTERM)
        assert relay.wait() == 0
        assert not outbox.verify().duplicated


def test_a_prepared_transaction_is_waited_for(
    make_outbox: MakeOutbox, server: PostgresServer
) -> None:
    outbox = make_outbox(dsn=server.dsn)
    relay = outbox.start_relay()
    relay.wait_for_event("shard_assigned")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute("SET LOCAL eosframework.wake = off")
        outbox.publish_on(connection, "prepared")
        connection.execute("PREPARE TRANSACTION 'later'")
        outbox.publish(20)
        server.kill()
        server.start()
    outbox.publish(20)
    relay.wait_for_event("shard_assigned", 2)
    assert "prepared" not in outbox.arrived()
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("COMMIT PREPARED 'later'")
    outbox.wait_for(41)
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0
    verdict = outbox.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
def test_a_relay_goes_on_after_its_broker_was_killed_and_restarted(
    make_outbox: MakeOutbox, tmp_path: Path
) -> None:
    small = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
    with start_kafka(tmp_path / "kafka", fast_start=True, properties=small) as cluster:
        [node] = cluster.nodes
        outbox = make_outbox(bootstrap_servers=cluster.bootstrap_servers)
        relay = outbox.start_relay(settings=["worker.transaction_timeout_seconds=5"])
        relay.wait_for_event("shard_assigned")
        outbox.publish(50, each=5)
        outbox.wait_for(50)
        node.kill()
        outbox.publish(50, each=5)
        wait_until(lambda: bool(troubles(outbox)), "a failed call to the broker")
        node.start()
        outbox.publish(50, each=5)
        outbox.wait_for(150)
        relay.signal(signal.SIGTERM)
        assert relay.wait() == 0, relay.log[-3000:]
        verdict = outbox.verify()
        assert verdict.clean, verdict


def troubles(outbox: OutboxWorld) -> list[dict[str, object]]:
    names = ("outcome_unknown", "transaction_aborted", "recovery_retried", "producer_suspect")
    return [event for name in names for event in outbox.relays[-1].events(name)]


@pytest.mark.exhaustive
def test_a_database_restored_into_a_new_cluster_is_reconciled(
    make_outbox: MakeOutbox, server: PostgresServer, tmp_path: Path
) -> None:
    outbox = make_outbox(dsn=server.dsn)
    outbox.publish(30)
    sent_some(outbox)
    outbox.publish(10)
    with start_postgres(tmp_path / "new", settings=OWN) as restored:
        dump_into(server, restored)
        outbox.dsn = restored.dsn
        outbox.publish(5)
        refused_and_reconciled(outbox, "restored into a new cluster", 15)


@pytest.mark.parametrize(
    ("kind", "way", "reason"),
    [
        ("table", "to a point in time", "timeline 2"),
        pytest.param(
            "slot", "in place", "database is older than the position", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_database_set_back_to_a_backup_is_reconciled(
    make_outbox: MakeOutbox, server: PostgresServer, way: str, reason: str, kind: str
) -> None:
    outbox = make_outbox(dsn=server.dsn, kind=kind)
    outbox.finish()
    outbox.publish(30)
    sent_some(outbox)
    backup = server.data_dir / "backup"
    server.stop()
    copy(data_of(server.data_dir), backup)
    server.start()
    outbox.publish(10)
    sent_some(outbox)
    server.kill()
    shutil.rmtree(data_of(server.data_dir))
    copy(backup, data_of(server.data_dir))
    if way == "to a point in time":
        recover(data_of(server.data_dir))
    server.start()
    wait_until(lambda: not in_recovery(server), "the end of the recovery")
    outbox.publish(25)
    refused_and_reconciled(outbox, reason, 25)


def test_a_promoted_standby_that_lagged_is_reconciled(
    make_outbox: MakeOutbox, tmp_path: Path
) -> None:
    with (
        debian_postgres.start_primary(tmp_path / "primary") as primary,
        debian_postgres.start_standby(primary, tmp_path / "standby") as standby,
    ):
        outbox = make_outbox(dsn=primary.dsn)
        relay = outbox.start_relay(settings=KEEP_SENT, dsn=debian_postgres.both(primary, standby))
        relay.wait_for_event("shard_assigned")
        outbox.publish(20)
        outbox.wait_for(20)
        with psycopg.connect(primary.dsn, autocommit=True) as connection:
            wait_until(
                lambda: (
                    connection.execute(
                        "SELECT replay_lsn >= pg_current_wal_flush_lsn() FROM pg_stat_replication"
                    ).fetchone()
                    == (True,)
                ),
                "the standby's replay",
            )
        standby.suspend()
        outbox.publish(10)
        outbox.wait_for(30)
        primary.kill()
        standby.resume()
        debian_postgres.promote(standby)
        assert relay.wait() == 1
        assert "a standby was promoted" in relay.log
        outbox.dsn = standby.dsn
        outbox.publish(15)
        refused_and_reconciled(outbox, "a standby was promoted", 15)


def sent_some(outbox: OutboxWorld) -> None:
    """Send all there is, and leave it in the outbox."""
    relay = outbox.start_relay("--until-caught-up", settings=KEEP_SENT)
    assert relay.wait() == 0, relay.log[-3000:]


def refused_and_reconciled(outbox: OutboxWorld, reason: str, missing: int) -> None:
    """The relay refuses; reconcile tells what was not sent, changes nothing, then settles it."""
    before = outbox.arrived()
    relay = outbox.start_relay("--until-caught-up")
    assert relay.wait() == 2
    assert reason in relay.log
    shown = outbox.reconcile("--dry-run", "--json")
    assert shown.exit_code == 0, shown.err
    assert shown.json["missing"] == {outbox.topic: missing}
    assert not shown.json["settled"]
    assert outbox.arrived() == before
    settled: Finished = outbox.reconcile("--yes", "--json")
    assert settled.exit_code == 0, settled.err
    assert settled.json["settled"]
    outbox.publish(10)
    outbox.finish()
    verdict = outbox.verify()
    assert verdict.clean, verdict


def copy(source: Path, target: Path) -> None:
    """Copy a data directory with its owners."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def recover(data: Path) -> None:
    """Let the next start recover to the end of the log there is, on a new timeline."""
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\n")
    signal_file = data / "recovery.signal"
    signal_file.touch()
    give_to_account(signal_file)


def in_recovery(server: PostgresServer) -> bool:
    with psycopg.connect(server.dsn) as connection:
        return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)


def dump_into(server: PostgresServer, restored: PostgresServer) -> None:
    """Dump a server's database and restore it into another's."""
    from eosframework.embedded.postgres_programs import find_programs

    programs = find_programs()
    dump, psql = programs.path("pg_dump"), programs.path("psql")
    made = subprocess.run(
        [dump, server.dsn], env=programs.environment(), check=True, capture_output=True
    )
    subprocess.run(
        [psql, "--quiet", "--set=ON_ERROR_STOP=1", restored.dsn],
        env=programs.environment(),
        input=made.stdout,
        check=True,
        capture_output=True,
    )
