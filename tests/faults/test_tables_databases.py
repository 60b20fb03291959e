"""What becomes of the database while tables are filled: each row is there once, by itself."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from eosframework.embedded import PostgresServer, start_postgres
from eosframework.embedded.postgres_programs import give_to_account
from tests.support.applications.pipeline import WorkerProcess, wait_until
from tests.support.applications.tables import DIRECT, TablesWorld
from tests.support.faults.database_proxy import Cut, DatabaseProxy
from tests.support.servers import debian_postgres

MakeTables = Callable[..., TablesWorld]

SMALL = ["database.batch_rows=100", "worker.batch_records=50"]

TRANSFORMED = DIRECT.replace(
    "to: [{table: numbers, mode: append}]",
    'steps: [{map_values: "tests.support.applications.functions:double"}]\n'
    "    to: [{table: numbers}]",
)

WAITING = """
SELECT 1 FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
"""Somebody in this database waits for a lock; other tests have theirs on the same server."""

FAILING = """
CREATE SEQUENCE attempts;
CREATE FUNCTION fail_at_first() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE attempt bigint := nextval('attempts');
BEGIN
    IF attempt = 1 THEN RAISE 'could not serialize access' USING ERRCODE = '40001';
    ELSIF attempt = 2 THEN RAISE 'no space left on device' USING ERRCODE = '53100';
    ELSIF attempt = 3 THEN PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER fails BEFORE INSERT ON numbers FOR EACH STATEMENT EXECUTE FUNCTION fail_at_first();
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that this test may break."""
    with start_postgres(tmp_path / "own") as own:
        yield own


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes that the server may write to."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a disk can be mounted by root only: {done.stderr.strip()}")
    give_to_account(place)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on a disk; removing what is returned makes room again."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(disk).free == 0
    return ballast


def filled(world: TablesWorld) -> TablesWorld:
    world.see("CREATE TABLE numbers (n bigint)")
    world.apply()
    return world


def end(world: TablesWorld, worker: WorkerProcess, count: int, factor: int = 1) -> None:
    """All rows arrive, then the worker stops in order, and each row is there once."""
    world.wait_for(count)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert world.kept(factor=factor).clean, world.kept(factor=factor)
    assert world.count() == count


def test_a_connection_cut_in_copy_or_commit_is_claimed_again_and_never_guessed(
    make_tables: MakeTables,
) -> None:
    world = filled(make_tables())
    cuts = [Cut.IN_COPY, Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT]
    with DatabaseProxy(world.dsn) as proxy:
        worker = world.start_worker(dsn=proxy.dsn, settings=SMALL)
        worker.wait_for_event("partition_claimed", 4)
        for number, cut in enumerate(cuts, 1):
            proxy.cut(cut)
            world.feed(400)
            wait_until(lambda number=number: len(proxy.happened) == number, str(cut))
            worker.wait_for_event("database_available", number)
            world.wait_for(400 * number)
        assert proxy.happened == cuts
        end(world, worker, 1200)


def test_a_commit_that_arrives_late_is_waited_for_by_the_claim(make_tables: MakeTables) -> None:
    """A look at the position would show it as it was, and the rows would be there twice."""
    world = filled(make_tables(partitions=1))
    with DatabaseProxy(world.dsn) as proxy:
        worker = world.start_worker(dsn=proxy.dsn, settings=SMALL)
        worker.wait_for_event("partition_claimed")
        proxy.cut(Cut.LATE_COMMIT)
        world.feed(50)
        wait_until(lambda: bool(proxy.happened), "a COMMIT under way")
        wait_until(lambda: bool(world.see(WAITING)), "a claim that waits")
        assert len(worker.events("partition_claimed")) == 1
        proxy.deliver()
        worker.wait_for_event("partition_claimed", 2)
        assert worker.events("partition_claimed")[1]["offset"] == 50
        end(world, worker, 50)


@pytest.mark.exhaustive
def test_conflicts_full_disks_and_ended_sessions_are_waited_out(make_tables: MakeTables) -> None:
    world = filled(make_tables())
    world.see(FAILING)
    world.feed(400)
    worker = world.start_worker(settings=SMALL)
    world.wait_for(400)
    assert world.see("SELECT last_value >= 4 FROM attempts") == [(True,)]
    said = "".join(str(event["error"]) for event in worker.events("database_unavailable"))
    assert "could not serialize access" in said
    end(world, worker, 400)


@pytest.mark.exhaustive
def test_a_disk_that_is_full_is_waited_for_until_there_is_room(
    make_tables: MakeTables, small_disk: Path, server: PostgresServer
) -> None:
    world = make_tables(dsn=server.dsn)
    world.see(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    world.see("CREATE TABLE numbers (n bigint) TABLESPACE small")
    world.apply()
    worker = world.start_worker(settings=SMALL)
    worker.wait_for_event("partition_claimed", 4)
    ballast = fill(small_disk)
    world.feed(400)
    worker.wait_for_event("database_unavailable")
    [away, *_] = worker.events("database_unavailable")
    assert "No space left on device" in str(away["error"])
    assert "(53100)" in str(away["error"])
    assert world.count() == 0
    ballast.unlink()
    worker.wait_for_event("database_available")
    end(world, worker, 400)


def test_a_deadlock_is_undone_and_done_again(make_tables: MakeTables) -> None:
    world = filled(make_tables(partitions=1))
    name = world.see("SELECT current_database()")[0][0]
    world.see(f"ALTER DATABASE {name} SET deadlock_timeout = '10s'")
    worker = world.start_worker(settings=SMALL)
    worker.wait_for_event("partition_claimed")
    with psycopg.connect(world.dsn) as rival:
        rival.execute("SET deadlock_timeout = '60s'")
        rival.execute("LOCK TABLE numbers IN ACCESS EXCLUSIVE MODE")
        world.feed(50)
        wait_until(lambda: bool(world.see(WAITING)), "a worker that waits for the table")
        rival.execute("UPDATE eosframework.positions SET updated_at = now()")
        rival.commit()
    # The rival commits as soon as the worker's transaction is undone, and the worker tells later.
    worker.wait_for_event("database_unavailable")
    [away, *_] = worker.events("database_unavailable")
    assert "deadlock" in str(away["error"])
    end(world, worker, 50)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_database_killed_restarted_and_gone_for_long_is_waited_for(
    make_tables: MakeTables, server: PostgresServer
) -> None:
    world = filled(make_tables(dsn=server.dsn))
    world.feed(400)
    worker = world.start_worker(settings=[*SMALL, "worker.session_timeout_seconds=10"])
    world.wait_for(100)
    server.kill()
    world.feed(400)
    worker.wait_for_event("database_unavailable")
    # Two sessions long and more: who is not heard of meanwhile loses the partitions.
    threading.Event().wait(25)
    assert not worker.events("database_available")
    server.start()
    worker.wait_for_event("database_available")
    assert not worker.events("partitions_lost")
    end(world, worker, 800)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(("topology", "factor"), [(DIRECT, 1), (TRANSFORMED, 2)])
def test_a_promoted_standby_is_gone_on_with_even_if_it_lagged(
    make_tables: MakeTables, tmp_path: Path, topology: str, factor: int
) -> None:
    """Rows and position are lost together, so they are written again together.

    Rows that a transform has made are still in their topic, for `database.keep_rows_seconds`.
    """
    with debian_postgres.start_primary(tmp_path / "primary") as primary:
        world = filled(make_tables(dsn=primary.dsn, topology=topology))
        with debian_postgres.start_standby(primary, tmp_path / "standby") as standby:
            world.feed(400)
            dsn = debian_postgres.both(primary, standby)
            worker = world.start_worker(dsn=dsn, settings=SMALL)
            world.wait_for(400)
            behind = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()"
            wait_until(lambda: bool(world.see(behind)), "a standby that has it all")
            standby.stop()
            world.feed(400)
            world.wait_for(800)
            primary.kill()
            world.feed(100)
            worker.wait_for_event("database_unavailable")
            standby.start()
            debian_postgres.promote(standby)
            world.dsn = standby.dsn
            assert world.count() < 800
            end(world, worker, 900, factor)
