"""`latency`: at 10,000 records/s, from `produce()` to a read_committed reader."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contestants.framework import A_PRODUCER_EACH, EACH, Framework
from benchmarks.contestants.handwritten import Handwritten
from benchmarks.contestants.streams import KafkaStreams
from benchmarks.contestants.work import Contestant, Unavailable
from benchmarks.inputs import PARTITIONS
from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from benchmarks.waits import RECORDS_PER_SECOND, Waits, waits_of

DEFAULT_SECONDS = 10.0
DEFAULT_ROUNDS = 1
COMMIT_SECONDS = (0.1, 0.01)
PARTITION_COUNTS = (16, 64, 256)
"""Besides the default; eosframework and Kafka Streams only, at the first commit interval."""
BESIDE_STREAMS = "1.1 × Kafka Streams"
GOALS = {0.1: "p50 < 80, p99 < 200", 0.01: "p50 < 25"}


@dataclass(frozen=True)
class Row:
    """A contestant between producer and reader, its commit interval, and the result."""

    contestant: Contestant | None
    commit_seconds: float
    partitions: int = PARTITIONS
    found: list[Waits] = field(default_factory=list[Waits])

    @property
    def name(self) -> str:
        return self.contestant.name if self.contestant else "nobody: the input is read"

    def median(self, of: str) -> float:
        return statistics.median(getattr(waits, of) for waits in self.found)


def run(session: Session, options: Options, report: Report) -> None:
    """Measure everybody at both commit intervals in every round."""
    seconds = options.seconds or DEFAULT_SECONDS
    everybody: list[Contestant] = [
        Framework(),
        Framework(EACH, A_PRODUCER_EACH),
        Handwritten(),
        KafkaStreams(),
    ]
    present = [contestant for contestant in everybody if _can_run(contestant, report)]
    rows = [Row(contestant, commit) for commit in COMMIT_SECONDS for contestant in present]
    rows += [
        Row(contestant, COMMIT_SECONDS[0], count)
        for count in PARTITION_COUNTS
        for contestant in present
        if contestant.name in (Framework().name, KafkaStreams().name)
    ]
    rows.append(Row(None, 0))
    for commit in COMMIT_SECONDS:  # thrown away: the broker's Java compiles what it does
        waits_of(session, Handwritten(), seconds=seconds, commit_seconds=commit)
    for _ in range(options.rounds or DEFAULT_ROUNDS):
        for row in rows:
            waits = waits_of(
                session,
                row.contestant,
                seconds=seconds,
                commit_seconds=row.commit_seconds or 0.1,
                partitions=row.partitions,
            )
            row.found.append(waits)
            report.progress(
                f"{row.name}, {row.commit_seconds:g} s, {row.partitions} partitions: "
                f"p50 {waits.median:.1f} ms, p99 {waits.p99:.1f} ms"
            )
    report.add("latency", _table(rows), _data(rows))


def _can_run(contestant: Contestant, report: Report) -> bool:
    try:
        contestant.prepare()
    except Unavailable as reason:
        report.progress(f"{contestant.name} is absent: {reason}")
        return False
    return True


def _table(rows: list[Row]) -> Table:
    return Table(
        f"{RECORDS_PER_SECOND:,} records/s of 100 bytes, from produce() to a read_committed reader",
        ("in between", "commits every, ms", "partitions", "p50, ms", "p99, ms", "goal, ms"),
        [
            (
                row.name,
                f"{row.commit_seconds * 1000:g}" if row.contestant else "",
                str(row.partitions),
                f"{row.median('median'):.1f}",
                f"{row.median('p99'):.1f}",
                _goal(row),
            )
            for row in rows
        ],
    )


def _goal(row: Row) -> str:
    if not isinstance(row.contestant, Framework):
        return ""
    return GOALS[row.commit_seconds] if row.partitions == PARTITIONS else BESIDE_STREAMS


def _data(rows: list[Row]) -> dict[str, Any]:
    found = [
        {
            "contestant": row.name,
            "commit_seconds": row.commit_seconds,
            "partitions": row.partitions,
            "p50_milliseconds": [round(waits.median, 2) for waits in row.found],
            "p99_milliseconds": [round(waits.p99, 2) for waits in row.found],
            "records": [waits.records for waits in row.found],
        }
        for row in rows
    ]
    return {"records_per_second": RECORDS_PER_SECOND, "rows": found}
