"""`curves`: speed and latency of one worker over its commit interval, and over partitions."""

from __future__ import annotations

from typing import Any

from benchmarks.contestants.framework import A_PRODUCER_EACH, EACH, Framework
from benchmarks.contestants.work import Work
from benchmarks.disciplines import JSON
from benchmarks.inputs import PARTITIONS
from benchmarks.measure import (
    CommittedOffsets,
    Speed,
    TooFewRecords,
    speed_of_input,
    speed_over_rounds,
)
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session
from benchmarks.waits import RECORDS_PER_SECOND, waits_of

COMMIT_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
PARTITION_COUNTS = (1, 4, 16, 64)
DEFAULT_RECORDS = 1_500_000
LONG_RECORDS = 8_000_000
"""Enough for two commits that are ten seconds apart."""
LONG_SECONDS = 0.3
"""From this interval on speed is measured from commit to commit, on the longer input."""
ROUNDS_SECONDS = 6.0
DEFAULT_SECONDS = 5.0


def run(session: Session, options: Options, report: Report) -> None:
    """Measure speed with a backlog and latency at a steady rate, for every point."""
    seconds = options.seconds or DEFAULT_SECONDS
    waits_of(session, Framework(), seconds=1)  # the first run warms the broker up
    found: dict[str, list[dict[str, Any]]] = {"commit_seconds": [], "partitions": []}

    def add(to: str, commit_seconds: float, partitions: int) -> None:
        for contestant in (Framework(), Framework(EACH, A_PRODUCER_EACH)):
            point = _point(
                session, options, report, contestant, seconds, commit_seconds, partitions
            )
            found[to].append(point)
            report.progress(_told(point))

    for commit_seconds in COMMIT_SECONDS:
        add("commit_seconds", commit_seconds, PARTITIONS)
    for count in PARTITION_COUNTS:
        add("partitions", 0.1, count)
    table = Table(
        f"One worker: speed with JSON; latency of 100 bytes at {RECORDS_PER_SECOND:,} records/s",
        (
            *("contestant", "commits every, s", "partitions", "records/s", "CPU µs/record"),
            *("p50, ms", "p99, ms"),
        ),
        [_row(point) for points in found.values() for point in points],
    )
    report.add("curves", table, dict(found))


def _point(
    session: Session,
    options: Options,
    report: Report,
    contestant: Framework,
    seconds: float,
    commit_seconds: float,
    partitions: int,
) -> dict[str, Any]:
    try:
        speed = _speed(session, options, contestant, commit_seconds, partitions)
    except TooFewRecords as reason:
        speed = None
        report.progress(f"no speed with commits every {commit_seconds:g} s: {reason}")
    waits = waits_of(
        session,
        contestant,
        seconds=max(seconds, 2 * commit_seconds),
        commit_seconds=commit_seconds,
        partitions=partitions,
    )
    return {
        "contestant": contestant.name,
        "commit_seconds": commit_seconds,
        "partitions": partitions,
        "records_per_second": speed and round(speed.records_per_second),
        "cpu_microseconds_per_record": speed and round(speed.cpu_microseconds_per_record, 3),
        "p50_milliseconds": round(waits.median, 1),
        "p99_milliseconds": round(waits.p99, 1),
    }


def _speed(
    session: Session,
    options: Options,
    contestant: Framework,
    commit_seconds: float,
    partitions: int,
) -> Speed:
    """Measure over the whole input, or, where commits are far apart, from one to another."""
    far_apart = commit_seconds >= LONG_SECONDS
    records = options.records or (LONG_RECORDS if far_apart else DEFAULT_RECORDS)

    def measure(offsets: CommittedOffsets, child: Child, _: Work) -> Speed:
        if not far_apart:
            return speed_of_input(offsets, child, records)
        return speed_over_rounds(
            offsets,
            child,
            records,
            rounds=max(1, int(ROUNDS_SECONDS / commit_seconds)),
            apart_seconds=commit_seconds / 3,
        )

    return session.run(
        contestant,
        session.topic_of(JSON.made, records, partitions),
        measure,
        discipline=JSON.name,
        commit_interval_seconds=commit_seconds,
        partitions=partitions,
    )


def _row(point: dict[str, Any]) -> tuple[str, ...]:
    speed, cpu = point["records_per_second"], point["cpu_microseconds_per_record"]
    return (
        point["contestant"],
        f"{point['commit_seconds']:g}",
        str(point["partitions"]),
        *(("too few records", "") if speed is None else (f"{speed:,}", f"{cpu:.2f}")),
        f"{point['p50_milliseconds']:.1f}",
        f"{point['p99_milliseconds']:.1f}",
    )


def _told(point: dict[str, Any]) -> str:
    name, commit, partitions, speed, _, median, _ = _row(point)
    return f"{name}, {partitions} partitions, {commit} s: records/s: {speed}, p50 {median} ms"
