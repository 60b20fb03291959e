"""`outbox`: a backlog against loops without guarantee, and the way of a row at a steady rate.

One loop sends what the relay sends, key, value and the message's id as a header; the other leaves
the id out, which is two fifths of such a loop's CPU. Both are shown; the goal is beside the first.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg

from benchmarks.contestants import outbox_program
from benchmarks.inputs import create_topics
from benchmarks.measure import WrittenRecords, speed_of_input
from benchmarks.memory import PeakMemory
from benchmarks.options import Options
from benchmarks.outbox_latency import Latencies, latencies_at
from benchmarks.processes import Command, running
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.config import DatabaseSettings
from eosframework.embedded import start_postgres
from eosframework.postgres.database import Database, migrate

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 3
DEFAULT_SECONDS = 20.0
ROWS_PER_SECOND = 1000
GOAL_RATIO = 0.8
GOAL_MEGABYTES = 250
GOAL_MILLISECONDS = 150

FILL = """
INSERT INTO eosframework.outbox (topic, key, value)
SELECT %s, convert_to('customer-' || n %% 1000, 'UTF8'),
       convert_to(format('{"order": %%s, "product": "p-%%s", "amount": %%s, "note": "%%s"}',
                         n, n %% 97, n * 7 %% 1000, repeat('x', 60)), 'UTF8')
FROM generate_series(1, %s) AS n
"""


@dataclass
class Runs:
    """One contestant's runs.

    Args:
        what: of each row a loop sends; None: the relay.
    """

    name: str
    what: str | None = None
    rows_per_second: list[float] = field(default_factory=list[float])
    cpu_microseconds: list[float] = field(default_factory=list[float])
    peak_megabytes: list[float] = field(default_factory=list[float])


def run(session: Session, options: Options, report: Report) -> None:
    """Let all drain the same backlog in turns; then publish at a steady rate and watch."""
    records = options.records or DEFAULT_RECORDS
    ours = Runs("relay-outbox")
    same = Runs("SELECT and produce", "with-id")
    bare = Runs("the same without ids", "bare")
    all_runs = (ours, same, bare)
    relay = session.name("relay")  # one for all turns: a database accepts one name
    with start_postgres(session.directory / "postgres") as server:
        migrate(Database(DatabaseSettings.model_validate({"dsn": server.dsn})))
        for number in range(options.rounds or DEFAULT_ROUNDS):
            for runs in all_runs if number % 2 else reversed(all_runs):
                _turn(session, server.dsn, relay, records, runs)
                report.progress(
                    f"round {number + 1}: {runs.name} {runs.rows_per_second[-1]:,.0f} rows/s, "
                    f"{runs.peak_megabytes[-1]:.0f} MB"
                )
        _fill(server.dsn, "none", 0)
        latencies = _latencies(session, server.dsn, relay, options.seconds or DEFAULT_SECONDS)
    ratio, ratio_bare = _ratio(ours, same), _ratio(ours, bare)
    report.add(
        "outbox",
        _table(records, all_runs, ratio, ratio_bare, latencies),
        {
            "records": records,
            "ratio": round(ratio, 3),
            "ratio_bare": round(ratio_bare, 3),
            "rows_per_second": {r.name: r.rows_per_second for r in all_runs},
            "cpu_microseconds": {r.name: r.cpu_microseconds for r in all_runs},
            "peak_megabytes": {r.name: r.peak_megabytes for r in all_runs},
            "latency_milliseconds": {"median": latencies.median, "p99": latencies.p99},
        },
    )


def _ratio(ours: Runs, theirs: Runs) -> float:
    return statistics.median(
        own / other for own, other in zip(ours.rows_per_second, theirs.rows_per_second, strict=True)
    )


def _turn(session: Session, dsn: str, relay: str, records: int, runs: Runs) -> None:
    topic = session.name("orders")
    create_topics(session.bootstrap_servers, topic)
    _fill(dsn, topic, records)
    command = (
        relay_command(session, dsn, relay)
        if runs.what is None
        else Command(
            [
                *(sys.executable, outbox_program.__file__),
                *(dsn, session.bootstrap_servers, str(records), runs.what),
            ]
        )
    )
    log_file = session.directory / f"{topic}.log"
    written = WrittenRecords(session.bootstrap_servers, topic)
    try:
        with running(command, log_file) as child, PeakMemory(child.pid) as peak:
            speed = speed_of_input(written, child, records)
    finally:
        written.close()
    runs.rows_per_second.append(speed.records_per_second)
    runs.cpu_microseconds.append(speed.cpu_microseconds_per_record)
    runs.peak_megabytes.append(peak.bytes / 1e6)


def relay_command(session: Session, dsn: str, name: str) -> Command:
    return Command(
        [sys.executable, "-m", "eosframework", "relay-outbox"],
        {
            "EOS_DATABASE__DSN": dsn,
            "EOS_KAFKA__BOOTSTRAP_SERVERS": session.bootstrap_servers,
            "EOS_OUTBOX__NAME": name,
        },
    )


def _fill(dsn: str, topic: str, records: int) -> None:
    """Leave exactly `records` rows in the outbox, and no work for the server's own processes."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE eosframework.outbox")
        connection.execute(FILL, [topic, records])
        connection.execute("VACUUM ANALYZE eosframework.outbox")
        connection.execute("CHECKPOINT")


def _latencies(session: Session, dsn: str, relay: str, seconds: float) -> Latencies:
    topic = session.name("orders")
    create_topics(session.bootstrap_servers, topic)
    log_file = session.directory / f"{topic}.log"
    with running(relay_command(session, dsn, relay), log_file) as child:
        return latencies_at(
            dsn, session.bootstrap_servers, topic, ROWS_PER_SECOND, seconds, child.require_running
        )


def _table(
    records: int, all_runs: Sequence[Runs], ratio: float, ratio_bare: float, latencies: Latencies
) -> Table:
    latency = f"{latencies.median:.0f}, p99 {latencies.p99:.0f} (goal < {GOAL_MILLISECONDS})"
    beside = ("", f"{ratio:.2f} (goal ≥ {GOAL_RATIO})", f"{ratio_bare:.2f}")
    return Table(
        title=(
            f"A backlog of {records:,} rows in PostgreSQL, and {ROWS_PER_SECOND:,} rows a second, "
            f"each committed by itself"
        ),
        columns=(
            *("", "rows/s", "spread", "relay-outbox beside it", "CPU µs/row"),
            *(f"peak MB (goal < {GOAL_MEGABYTES})", "committed → visible, ms"),
        ),
        rows=[
            (
                runs.name,
                f"{statistics.median(runs.rows_per_second):,.0f}",
                f"{min(runs.rows_per_second):,.0f} to {max(runs.rows_per_second):,.0f}",
                share,
                f"{statistics.median(runs.cpu_microseconds):.2f}",
                f"{max(runs.peak_megabytes):.0f}",
                latency if runs.what is None else "",
            )
            for runs, share in zip(all_runs, beside, strict=True)
        ],
    )
