"""`spark-sink`: a topic through sinks of Spark, next to what users write without it.

Each pair shares a Spark session that has done both before, in turns; a step is measured from its
call to its return, and a micro-batch by Spark itself.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg

from benchmarks.backfill import WARM_UP_RECORDS, watch_python_workers
from benchmarks.inputs import delete_topics, delete_topics_of
from benchmarks.options import Options
from benchmarks.outputs import committed
from benchmarks.processes import Command, ProcessFailed, running
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.embedded import start_postgres

DEFAULT_RECORDS = 2_000_000
DEFAULT_ROUNDS = 3
MICRO_BATCHES = 25
LARGE_BATCHES = 10
FIRST_BATCHES = 5
"""Batches that are not measured: they start the query, own the sink, fork Python."""

COLUMNS = '"order" bigint, customer text, product text, amount bigint, price float8'


@dataclass(frozen=True)
class Pair:
    """Our sink and its twin.

    Args:
        name: of both.
        twin: for the table.
        goal: of the ratio, or of the additional milliseconds.
    """

    name: str
    twin: str
    goal: str


PAIRS = (
    Pair("topic", "Spark's Kafka sink, at least once", "at least 0.6"),
    Pair("table", "foreachPartition with COPY, at least once", "at least 0.8"),
    Pair("micro", "a micro-batch of Spark's Kafka sink", "at most 200 ms more"),
    Pair("format", "a batch of 100,000 of kafka_sink", "at most 1.2"),
)
STREAMED = {"micro": MICRO_BATCHES * 1000, "format": LARGE_BATCHES * 100_000}
"""Records of the pairs that are queries; their batches are measured."""


def run(session: Session, options: Options, report: Report) -> None:
    """Measure each pair in every round, its first one in turns."""
    records = options.records or DEFAULT_RECORDS
    cpu: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {f"{k} {p.name}": [] for p in PAIRS for k in ("own", "plain")}
    peaks: list[float] = []
    with start_postgres(session.directory / "postgres") as server:
        for number in range(options.rounds or DEFAULT_ROUNDS):
            for pair in PAIRS:
                kinds = ("own", "plain") if number % 2 == 0 else ("plain", "own")
                order = [f"{kind} {pair.name}" for kind in kinds]
                found, peak = _measured(session, server.dsn, records, order)
                peaks.append(peak)
                for what, (taken, used) in found.items():
                    seconds[what].append(taken)
                    cpu.setdefault(what, []).append(used)
                told = ", ".join(
                    f"{what} {s:.3f} s (CPU {c:.1f} s)" for what, (s, c) in found.items()
                )
                report.progress(f"round {number + 1}: {told}; {peak:.0f} MB")
    data = {"records": records, "seconds": seconds, "cpu_seconds": cpu, "peak_megabytes": peaks}
    report.add("spark-sink", _table(records, seconds, cpu, peaks), data)


def _measured(
    session: Session, dsn: str, records: int, order: list[str]
) -> tuple[dict[str, tuple[float, float]], float]:
    """Return (seconds, processor seconds) of each, and the largest Python worker in megabytes."""
    topic = session.input_topic(max(records, *STREAMED.values()))
    pair = order[0].split()[1]
    is_table, is_query = pair == "table", pair in STREAMED
    count = STREAMED.get(pair, records)
    works = [
        (what, session.work(topic), number)
        for number in (count if is_query else WARM_UP_RECORDS, count)
        for what in order
    ]
    steps = [f"{what},{w.application},{_target(what, w.output_topic)},{n}" for what, w, n in works]
    program = [sys.executable, "-m", "benchmarks.contestants.spark_sink_program", *steps]
    environment = {**works[0][1].environment(), "BENCH_DSN": dsn}
    log_file = session.directory / f"{works[0][1].application}.log"
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            for what, work, _ in works:
                if is_table:
                    table = _target(what, work.output_topic)
                    connection.execute(f"CREATE TABLE {table} ({COLUMNS})".encode())
            with running(Command(program, environment), log_file) as child:
                peak_megabytes = watch_python_workers(child)
                lines = [orjson.loads(s) for s in child.log.splitlines() if '"seconds"' in s]
            for what, work, number in works[-len(order) :]:
                target = _target(what, work.output_topic)
                found = (
                    _rows(connection, target)
                    if is_table
                    else sum(1 for _ in committed(session.bootstrap_servers, target))
                )
                if found < number:
                    raise ProcessFailed(f"{target} holds {found} of {number} records")
        finally:
            for what, work, _ in works:
                if is_table:
                    name = _target(what, work.output_topic)
                    connection.execute(f"DROP TABLE IF EXISTS {name}".encode())
                delete_topics(session.bootstrap_servers, work.output_topic)
                delete_topics_of(session.bootstrap_servers, work.application)
    taken = {line["what"]: (_seconds(line), line["cpu_seconds"]) for line in lines[-len(order) :]}
    return taken, peak_megabytes


def _seconds(line: dict[str, Any]) -> float:
    """Return those of a median micro-batch, or of the step."""
    batches = line["batches"][FIRST_BATCHES:]
    return statistics.median(batches) if batches else line["seconds"]


def _target(what: str, topic: str) -> str:
    return topic.replace(".", "_") if what.endswith("table") else topic


def _rows(connection: psycopg.Connection[tuple[object, ...]], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(str(row[0]))


def _table(
    records: int,
    seconds: dict[str, list[float]],
    cpu: dict[str, list[float]],
    peaks: list[float],
) -> Table:
    rows: list[tuple[str, ...]] = []
    for pair in PAIRS:
        own, twin = seconds[f"own {pair.name}"], seconds[f"plain {pair.name}"]
        if pair.name in STREAMED:
            medians = [f"{statistics.median(x):.3f} s" for x in (own, twin)]
            more = statistics.median(a - b for a, b in zip(own, twin, strict=True)) * 1000
            times = statistics.median(a / b for a, b in zip(own, twin, strict=True))
            shown = f"{more:+.0f} ms" if pair.name == "micro" else f"{times:.2f} × its time"
        else:
            ratio = statistics.median(b / a for a, b in zip(own, twin, strict=True))
            shown = f"{ratio:.2f}"
            medians = [f"{records / statistics.median(x):,.0f} rows/s" for x in (own, twin)]
        used = statistics.median(
            b / a for a, b in zip(cpu[f"own {pair.name}"], cpu[f"plain {pair.name}"], strict=True)
        )
        rows.append((pair.name, medians[0], pair.twin, medians[1], shown, f"{used:.2f}", pair.goal))
    memory = f"{max(peaks):.0f} MB"
    rows.append(("largest Python worker", memory, "", "", "", "", "under 300 MB"))
    return Table(
        title=f"Sinks of Spark, {records:,} JSON records",
        columns=("what", "eosframework", "twin", "its median", "ours to it", "of CPU", "goal"),
        rows=rows,
    )
