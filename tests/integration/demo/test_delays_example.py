"""The example with joins and windows as it stands, on a month of flights, its workers killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eosframework.embedded import start_kafka
from tests.conftest import SMALL_BROKER
from tests.support.applications.pipeline import WorkerProcess, read_committed
from tests.support.processes.commands import Folder
from tests.support.processes.programs import (
    FAULTY,
    REPOSITORY,
    Finished,
    framework_command,
    start_command,
)
from tests.support.verifiers.delays import Expected, expected, name_of

MONTH = 12
"""With storms, and without any weather of its last day."""

KILLS = {
    "transaction.after_produce": 40,
    "transaction.before_commit": 4,
    "state.before_write": 6,
    "table_writer.before_commit": 2,
}
"""At which steps of their transactions workers are killed, and at the how manieth of a process."""

SETTINGS = [
    "worker.session_timeout_seconds=6",
    "worker.batch_records=100",
    "worker.commit_interval_seconds=0.05",
    "database.batch_rows=100",
    "log.format=json",
]


class Delays:
    """The example in a directory of its own, with a broker and a database of its own."""

    def __init__(self, directory: Path, bootstrap_servers: str, dsn: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.dsn = dsn
        self._directory = directory
        self._own = {"EOS_DATABASE__DSN": dsn, "EOS_STATE__DIRECTORY": str(directory / "state")}
        self._folder = Folder(directory / "example", bootstrap_servers)
        shutil.copytree(REPOSITORY / "examples" / "flights", self._folder.path)
        self.workers: list[WorkerProcess] = []

    def fill(self) -> None:
        command = [sys.executable, "fill.py", str(MONTH)]
        environment = self._folder.environment(self._own)
        subprocess.run(command, cwd=self._folder.path, env=environment, check=True, timeout=600)

    def run(self, command: str, *arguments: str) -> Finished:
        done = self._folder.run(command, "delays.yaml", *arguments, environment=self._own)
        assert done.exit_code == 0, done.err
        return done

    def start(self, *arguments: str, kill_at: dict[str, int]) -> WorkerProcess:
        """Start workers under a supervisor; each of the faults kills one of them, once."""
        number = len(self.workers)
        log_file, faults = self._directory / f"{number}.log", self._directory / f"faults{number}"
        faults.mkdir()
        command = framework_command("run-worker", "delays.yaml", *arguments, module=FAULTY)
        command += [f"--set={setting}" for setting in SETTINGS]
        chosen = {
            "EOS_TEST_FAULTS": ";".join(f"{point}=kill@{hit}" for point, hit in kill_at.items()),
            "EOS_TEST_FAULT_DIRECTORY": str(faults),
        }
        process = start_command(
            command,
            out=log_file,
            environment=self._folder.environment(self._own | chosen),
            directory=self._folder.path,
        )
        self.workers.append(WorkerProcess(process, log_file, faults))
        return self.workers[-1]

    def stop(self) -> None:
        for worker in self.workers:
            worker.end()

    def read(self, topic: str) -> list[tuple[Any, dict[str, Any]]]:
        """Return key and value of what is in a topic."""
        messages = read_committed(self.bootstrap_servers, topic)
        return [((m.key() or b"").decode(), json.loads(m.value() or b"")) for m in messages]

    def rows(self) -> list[tuple[Any, ...]]:
        query = "SELECT carrier, hour, flights, cancelled, late, mean_delay_minutes "
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query + "FROM hourly_delays").fetchall()


@pytest.fixture
def delays(tmp_path: Path, database: str) -> Iterator[Delays]:
    keep = {"log.retention.ms": "-1"}
    cluster = start_kafka(tmp_path / "kafka", fast_start=True, properties=SMALL_BROKER | keep)
    world = Delays(tmp_path, cluster.bootstrap_servers, database)
    try:
        yield world
    finally:
        world.stop()
        cluster.kill()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_joins_and_windows_of_real_flights_are_what_pandas_says_although_workers_are_killed(
    delays: Delays,
) -> None:
    """Equal to an independent computation: joins, windows, late flights and broken ones.

    Results are determined although workers are killed and tasks interleave as they like. Which
    flights are late goes by the order within a partition of the input alone: windows are in the
    sub-topology that reads it, behind no repartition topic, and nothing else moves its time. The
    joins behind repartition topics find the same whatever comes first: all rows of the tables are
    there before the first flight is read, and the weather knows its past for longer than flights
    may be delayed on their way.
    """
    delays.fill()
    delays.run("apply")
    supervisor = delays.start("--processes", "2", kill_at=KILLS)
    for point in KILLS:
        supervisor.wait_for_fault(point)
    supervisor.wait_for_event("worker_died", count=len(KILLS))
    assert {death["signal"] for death in supervisor.events("worker_died")} == {"SIGKILL"}
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0, supervisor.log[-3000:]
    for _ in range(2):  # The second run finds no input, and sends what waits for stream time.
        worker = delays.start("--until-caught-up", kill_at={})
        assert worker.wait() == 0, worker.log[-3000:]
    wanted = expected([MONTH], read_committed(delays.bootstrap_servers, "flights.landed"))
    require_something_of_everything(wanted)
    assert_described(delays, wanted)
    assert_hourly(delays, wanted)
    assert Counter(name_of(value) for _, value in delays.read("flights.too_late")) == Counter(
        wanted.late
    )
    assert Counter(name_of(value) for _, value in delays.read("flights.dead")) == Counter(
        wanted.dead
    )


def require_something_of_everything(wanted: Expected) -> None:
    """What the comparison is worth."""
    flights = list(wanted.described.values())
    assert len(flights) > 28_000
    assert len(wanted.hourly) > 4900
    assert len(wanted.late) > 50
    assert len(wanted.dead) > 40
    for missing in ("tailnum", "plane", "weather", "destination", "delay_minutes"):
        assert 100 < sum(flight[missing] is None for flight in flights) < 10_000, missing


def assert_described(delays: Delays, wanted: Expected) -> None:
    found = delays.read("flights.described")
    names = Counter((flight["flight"], flight["scheduled"]) for _, flight in found)
    assert names == Counter(wanted.described.keys())
    for key, flight in found:
        assert key == flight["origin"]
        assert flight == wanted.described[flight["flight"], flight["scheduled"]]


def assert_hourly(delays: Delays, wanted: Expected) -> None:
    found = delays.read("flights.hourly")
    hours = Counter((carrier, window["start"]) for carrier, window in found)
    assert hours == Counter(wanted.hourly.keys())
    for carrier, window in found:
        assert window["end"] == window["start"] + 3_600_000
        assert window["value"] == wanted.hourly[carrier, window["start"]]
    rows = {
        (carrier, int(hour.timestamp()) * 1000): values for carrier, hour, *values in delays.rows()
    }
    assert len(delays.rows()) == len(rows) == len(wanted.hourly)
    for name, hour in wanted.hourly.items():
        arrived = hour["flights"] - hour["cancelled"]
        mean = hour["delay_minutes"] / arrived if arrived else None
        assert rows[name] == [hour["flights"], hour["cancelled"], hour["late"], mean]
