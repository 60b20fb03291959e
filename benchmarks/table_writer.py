"""`table-writer`: a topic into a table of PostgreSQL, against a loop written by hand."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psycopg

from benchmarks.inputs import PARTITIONS, create_topics, load
from benchmarks.measure import STALLED_SECONDS, speed_of_input
from benchmarks.memory import PeakMemory
from benchmarks.options import Options
from benchmarks.processes import Command, ProcessFailed, running
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.embedded import start_postgres

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 3
COMMIT_SECONDS = 0.2
GOAL_RATIO = 0.8
GOAL_MEGABYTES = 250

TOPOLOGY = """\
application: APPLICATION
sources:
  orders: {topic: TOPIC, key: bytes, value: json}
streams:
  kept:
    from: orders
    to: [{table: orders, mode: upsert, keys: id}]
"""

TABLES = """
DROP TABLE IF EXISTS orders;
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer text, product text, amount bigint, placed_at timestamptz
);
DROP TABLE IF EXISTS progress;
CREATE TABLE progress (partition integer PRIMARY KEY, next_offset bigint);
INSERT INTO progress SELECT n, 0 FROM generate_series(0, 3) AS n;
"""

OURS = "SELECT coalesce(sum(next_offset), 0) FROM eosframework.positions WHERE application = %s"
THEIRS = "SELECT sum(next_offset) FROM progress WHERE %s <> ''"


@dataclass
class Runs:
    """One contestant's runs."""

    name: str
    records_per_second: list[float] = field(default_factory=list[float])
    cpu_microseconds: list[float] = field(default_factory=list[float])
    peak_megabytes: list[float] = field(default_factory=list[float])


@dataclass(frozen=True)
class WrittenRows:
    """Looks at the positions in the database."""

    connection: psycopg.Connection[tuple[object, ...]]
    query: str
    application: str

    def total(self) -> int:
        """Number of records."""
        row = self.connection.execute(self.query.encode(), [self.application]).fetchone()
        assert row is not None
        return int(str(row[0]))


def run(session: Session, options: Options, report: Report) -> None:
    """Let both fill the table in turns; the ratio is that of neighbours."""
    records = options.records or DEFAULT_RECORDS
    topic = session.name("orders")
    create_topics(session.bootstrap_servers, topic)
    load(session.bootstrap_servers, topic, _records(records))
    ours, theirs = Runs("eosframework"), Runs("hand-written loop")
    with start_postgres(session.directory / "postgres") as server:
        for number in range(options.rounds or DEFAULT_ROUNDS):
            for runs in (ours, theirs) if number % 2 else (theirs, ours):
                _turn(session, server.dsn, topic, records, runs, is_ours=runs is ours)
                report.progress(
                    f"round {number + 1}: {runs.name} {runs.records_per_second[-1]:,.0f} rows/s"
                )
    ratio = statistics.median(
        own / other
        for own, other in zip(ours.records_per_second, theirs.records_per_second, strict=True)
    )
    report.add(
        "table-writer",
        _table(records, ours, theirs, ratio),
        {
            "records": records,
            "ratio": round(ratio, 3),
            "rows_per_second": {r.name: r.records_per_second for r in (ours, theirs)},
            "peak_megabytes": {r.name: r.peak_megabytes for r in (ours, theirs)},
        },
    )


def _turn(
    session: Session, dsn: str, topic: str, records: int, runs: Runs, *, is_ours: bool
) -> None:
    application = session.name("tables")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute("CHECKPOINT")
        make = _our_command if is_ours else _their_command
        command = make(session, dsn, topic, application)
        query = OURS if is_ours else THEIRS
        log_file = session.directory / f"{application}.log"
        with running(command, log_file) as child, PeakMemory(child.pid) as peak:
            progress = WrittenRows(connection, query, application)
            speed = speed_of_input(progress, child, records)
        found = connection.execute("SELECT count(*) FROM orders").fetchone()
        if found != (records,):
            raise ProcessFailed(f"{runs.name} left {found} rows of {records}")
    runs.records_per_second.append(speed.records_per_second)
    runs.cpu_microseconds.append(speed.cpu_microseconds_per_record)
    runs.peak_megabytes.append(peak.bytes / 1e6)


def _our_command(session: Session, dsn: str, topic: str, application: str) -> Command:
    file = session.directory / f"{application}.yaml"
    file.write_text(TOPOLOGY.replace("APPLICATION", application).replace("TOPIC", topic))
    environment = {
        "EOS_DATABASE__DSN": dsn,
        "EOS_DATABASE__COMMIT_INTERVAL_SECONDS": str(COMMIT_SECONDS),
        "EOS_KAFKA__BOOTSTRAP_SERVERS": session.bootstrap_servers,
    }
    own = [sys.executable, "-m", "eosframework"]
    applied = Command([*own, "apply", str(file)], environment)
    with running(applied, session.directory / f"{application}.apply.log") as child:
        try:
            code = child.process.wait(STALLED_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise ProcessFailed(f"apply ended with {code}:\n{child.log_tail()}")
    return Command([*own, "run-worker", str(file)], environment)


def _their_command(session: Session, dsn: str, topic: str, application: str) -> Command:
    program = Path(__file__).parent / "contestants" / "table_program.py"
    return Command(
        [sys.executable, str(program)],
        {
            "BENCH_DSN": dsn,
            "BENCH_BOOTSTRAP_SERVERS": session.bootstrap_servers,
            "BENCH_INPUT": topic,
            "BENCH_APPLICATION": application,
            "BENCH_COMMIT_SECONDS": str(COMMIT_SECONDS),
        },
    )


def _records(count: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(count):
        order = {
            "id": number,
            "customer": f"customer-{number % 10_000:05}",
            "product": "amber birch",
            "amount": number * 7 % 1_000_003,
            "placed_at": f"2026-03-{number % 28 + 1:02}T{number % 24:02}:15:00Z",
        }
        yield b"%d" % number, orjson.dumps(order)


def _table(records: int, ours: Runs, theirs: Runs, ratio: float) -> Table:
    rows = [
        (
            runs.name,
            f"{statistics.median(runs.records_per_second):,.0f}",
            f"{min(runs.records_per_second):,.0f} to {max(runs.records_per_second):,.0f}",
            f"{statistics.median(runs.cpu_microseconds):.2f}",
            f"{max(runs.peak_megabytes):.0f}",
            f"{ratio:.2f}" if runs is theirs else "",
        )
        for runs in (ours, theirs)
    ]
    rows.append(("goal", "", "", "", f"< {GOAL_MEGABYTES}", f"{GOAL_RATIO:.1f}"))
    return Table(
        title=f"Topic to table of PostgreSQL, {records:,} upserts of five columns, "
        f"{PARTITIONS} partitions, commits every {COMMIT_SECONDS * 1000:.0f} ms",
        columns=(
            "contestant",
            "rows/s, median",
            "spread",
            "CPU µs/row",
            "peak RSS, MB",
            "eosframework / it",
        ),
        rows=rows,
    )
