"""Attempts of one partition's way into a table, killed, stopped or at once: each row is there once.

Here they are processes of their own, as Python workers of Spark's executors are.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.embedded import PostgresServer, start_postgres
from eosframework.postgres.database import Database, migrate
from tests.support.applications.pipeline import WorkerProcess, wait_until
from tests.support.faults.database_proxy import Cut, DatabaseProxy
from tests.support.processes.programs import fork_program

RECORDS = 2000

SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
"""Who else is connected; a server may notice a moment later that a client is gone."""

WAITING = """
SELECT 1 FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


class Carriers:
    """Attempts on one database."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self.dsn = dsn
        self.directory = directory
        self.running: list[WorkerProcess] = []
        migrate(Database(DatabaseSettings(dsn=SecretStr(dsn))))
        self.see("CREATE TABLE numbers (n integer)")

    def start(
        self,
        attempt: int = 0,
        *,
        faults: Sequence[str] = (),
        pause_seconds: float = 0,
        stall_seconds: float = 1.5,
        gate: Path | None = None,
        dsn: str | None = None,
    ) -> WorkerProcess:
        log_file = self.directory / f"carrier{len(self.running)}.log"
        process = fork_program(
            "tests.support.applications.table_carrier",
            [
                dsn or self.dsn,
                "history",
                *map(str, (RECORDS, attempt, pause_seconds, stall_seconds)),
            ],
            environment={
                "EOS_TEST_FAULTS": ";".join(faults),
                "EOS_TEST_FAULT_DIRECTORY": str(self.directory),
                "EOS_TEST_GATE": str(gate or ""),
            },
            out=log_file,
        )
        self.running.append(WorkerProcess(process, log_file, self.directory))
        return self.running[-1]

    def see(self, query: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def numbers(self) -> list[int]:
        return [n for (n,) in self.see("SELECT n FROM numbers ORDER BY n")]

    def position(self) -> tuple[int, int]:
        """Epoch and offset."""
        return self.see("SELECT epoch, next_offset FROM eosframework.positions")[0]

    def fired(self, point: str) -> bool:
        return (self.directory / f"{point}.fired").exists()

    def stop(self) -> None:
        for carrier in self.running:
            if carrier.process.poll() is None:
                carrier.process.kill()
            carrier.process.wait()


@pytest.fixture
def carriers(database: str, tmp_path: Path) -> Iterator[Carriers]:
    made = Carriers(database, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that this test may break."""
    with start_postgres(tmp_path / "own") as own:
        yield own


def ended(carrier: WorkerProcess) -> tuple[int, str]:
    """Exit code, and everything that was said."""
    return carrier.wait(), carrier.log


def test_attempts_killed_at_each_step_in_turn_lose_and_double_no_row(carriers: Carriers) -> None:
    faults = [
        "table_writer.after_claim=kill@1",
        "table_writer.before_commit=kill@3",
        "table_writer.after_commit=kill@3",
    ]
    for fault in faults:
        killed = carriers.start(faults=[fault])
        assert ended(killed)[0] == -signal.SIGKILL
        assert carriers.fired(fault.partition("=")[0])
    assert 0 < len(carriers.numbers()) < RECORDS
    wait_until(lambda: carriers.see(SESSIONS) == [(0,)], "the end of the last one's session")
    code, said = ended(carriers.start(1))  # nobody else is connected, so it need not wait
    assert code == 0, said
    assert "attempt_watches" not in said
    assert carriers.numbers() == list(range(RECORDS))
    epoch, offset = carriers.position()
    assert offset == RECORDS
    assert epoch >= 4, "each attempt claims, and once more where its answer does not come"


@pytest.mark.exhaustive
def test_an_attempt_that_is_well_is_not_taken_over_by_one_that_starts(carriers: Carriers) -> None:
    gate = carriers.directory / "gate"
    first = carriers.start(pause_seconds=0.5, gate=gate)
    wait_until(lambda: len(carriers.numbers()) > 0, "rows of the first attempt")
    second = carriers.start(1, stall_seconds=20)
    wait_until(lambda: "attempt_watches" in second.log, "a second attempt that watches")
    gate.touch()
    code, said = ended(second)
    assert code == 0, said
    assert "attempt_watches" in said
    assert ended(first)[0] == 0
    assert carriers.numbers() == list(range(RECORDS))
    assert carriers.position() == (1, RECORDS)


def test_an_attempt_that_stands_still_is_taken_over_and_doubles_nothing_when_it_wakes_up(
    carriers: Carriers,
) -> None:
    zombie = carriers.start(faults=["table_writer.before_commit=stop@3"])
    wait_until(
        lambda: carriers.fired("table_writer.before_commit"), "the first attempt's third batch"
    )
    second = carriers.start(1)
    code, err = ended(second)
    assert code == 0, err
    assert carriers.numbers() == list(range(RECORDS))
    zombie.signal(signal.SIGCONT)
    ended(zombie)
    assert carriers.numbers() == list(range(RECORDS))
    assert carriers.position()[1] == RECORDS


def test_an_attempt_outlasts_a_database_that_restarts_before_its_first_look_and_at_a_write(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Its predecessor was killed, so the first look has to find out that it is gone (B1)."""
    carriers = Carriers(server.dsn, tmp_path)
    gate = tmp_path / "gate"
    try:
        killed = carriers.start(faults=["table_writer.after_commit=kill@2"])
        assert ended(killed)[0] == -signal.SIGKILL
        before = len(carriers.numbers())
        assert 0 < before < RECORDS
        server.kill()
        second = carriers.start(1, gate=gate)
        wait_until(lambda: second.log.count("database_unavailable") == 1, "a look without answer")
        server.start()
        wait_until(lambda: len(carriers.numbers()) > before, "rows of the second attempt")
        server.kill()
        gate.touch()
        wait_until(lambda: second.log.count("database_unavailable") == 2, "a write without answer")
        time.sleep(2)
        assert second.process.poll() is None, second.log[-3000:]
        server.start()
        code, said = ended(second)
        assert code == 0, said
        assert said.count("database_available") == 2, said
        assert carriers.numbers() == list(range(RECORDS))
        assert carriers.position()[1] == RECORDS
    finally:
        carriers.stop()


def test_a_connection_cut_in_copy_or_commit_is_claimed_again_by_the_attempt(
    carriers: Carriers,
) -> None:
    """As `test_tables_databases` does for table writers, with the same protocol (P4)."""
    cuts = [Cut.IN_COPY, Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT, Cut.LATE_COMMIT]
    with DatabaseProxy(carriers.dsn) as proxy:
        proxy.cut(cuts[0])
        attempt = carriers.start(pause_seconds=0.2, dsn=proxy.dsn)
        for number, cut in enumerate(cuts, 1):
            wait_until(lambda number=number: len(proxy.happened) == number, str(cut))
            if cut is not cuts[-1]:
                proxy.cut(cuts[number])
        wait_until(lambda: bool(carriers.see(WAITING)), "a claim that waits")
        assert attempt.log.count("partition_claimed") == 4
        proxy.deliver()
        code, said = ended(attempt)
        assert code == 0, said
        assert proxy.happened == cuts
    assert carriers.numbers() == list(range(RECORDS))
    assert carriers.position() == (5, RECORDS)
