"""`json`: the same work by every contestant, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.handwritten import Handwritten
from benchmarks.contestants.quix import QuixStreams
from benchmarks.contestants.streams import KafkaStreams
from benchmarks.contestants.work import Contestant, Unavailable, Work
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input
from benchmarks.options import Options
from benchmarks.outputs import require_doubled
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session

GOALS = {"hand-written loop": 0.8, "Kafka Streams": 1.5, "Quix Streams": 5.0}
"""What eosframework's speed should be, as a multiple of each other one's."""

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 5
WARM_UPS = 2
FEWEST_RECORDS = 20_000


@dataclass
class Standing:
    """One contestant and its runs so far."""

    contestant: Contestant
    version: str
    records: int
    speeds: list[Speed] = field(default_factory=list[Speed])

    @property
    def records_per_second(self) -> list[float]:
        return [speed.records_per_second for speed in self.speeds]

    @property
    def median(self) -> float:
        return statistics.median(self.records_per_second)

    def times_slower_than(self, other: Standing) -> float:
        """How many times faster `other` is: the median over rounds, whose runs are neighbours."""
        pairs = zip(other.records_per_second, self.records_per_second, strict=True)
        return statistics.median(theirs / own for theirs, own in pairs)

    @property
    def cpu_microseconds(self) -> float:
        return statistics.median(speed.cpu_microseconds_per_record for speed in self.speeds)


def run(session: Session, options: Options, report: Report) -> None:
    """Let every contestant work in every round, each round beginning with another one."""
    records = options.records or DEFAULT_RECORDS
    standings, absent = _entries(records)
    for _ in range(WARM_UPS):
        _turn(session, Standing(Handwritten(), "", records))
    for round_number in range(options.rounds or DEFAULT_ROUNDS):
        start = round_number % len(standings)
        for standing in standings[start:] + standings[:start]:
            speed = _turn(session, standing)
            standing.speeds.append(speed)
            report.progress(
                f"round {round_number + 1}: {standing.contestant.name} "
                f"{speed.records_per_second:,.0f} records/s"
            )
    report.add("json", _table(standings, absent, records), _data(standings, absent))


def _entries(records: int) -> tuple[list[Standing], dict[str, str]]:
    present: list[Standing] = []
    absent: dict[str, str] = {}
    contestants: Sequence[Contestant] = (Framework(), Handwritten(), KafkaStreams(), QuixStreams())
    for contestant in contestants:
        try:
            version = contestant.prepare()
        except Unavailable as reason:
            absent[contestant.name] = str(reason)
            continue
        share = max(FEWEST_RECORDS, int(records * contestant.share))
        present.append(Standing(contestant, version, min(records, share)))
    return present, absent


def _turn(session: Session, standing: Standing) -> Speed:
    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> Speed:
        speed = speed_of_input(offsets, child, standing.records)
        child.stop()
        require_doubled(session.bootstrap_servers, work.output_topic, standing.records)
        return speed

    topic = session.input_topic(standing.records)
    return session.run(standing.contestant, topic, measure)


def _table(standings: list[Standing], absent: dict[str, str], records: int) -> Table:
    ours = standings[0]
    rows: list[tuple[str, ...]] = []
    for standing in standings:
        speeds = standing.records_per_second
        goal = GOALS.get(standing.contestant.name)
        rows.append(
            (
                standing.contestant.name,
                standing.version,
                f"{standing.median:,.0f}",
                f"{min(speeds):,.0f} to {max(speeds):,.0f}",
                f"{standing.cpu_microseconds:.2f}",
                f"{standing.times_slower_than(ours):.2f}" if goal else "",
                f"{goal:.1f}" if goal else "",
            )
        )
    rows += [(name, reason, "", "", "", "", "") for name, reason in absent.items()]
    return Table(
        title=f"JSON, {records:,} records of about 225 bytes, exactly-once, commits every 100 ms",
        columns=(
            "contestant",
            "version",
            "records/s, median",
            "spread",
            "CPU µs/record",
            "eosframework / it",
            "goal",
        ),
        rows=rows,
    )


def _data(standings: list[Standing], absent: dict[str, str]) -> dict[str, Any]:
    ours = standings[0]
    return {
        "contestants": {
            standing.contestant.name: {
                "version": standing.version,
                "records": standing.records,
                "records_per_second": [round(speed) for speed in standing.records_per_second],
                "median_records_per_second": round(standing.median),
                "cpu_microseconds_per_record": round(standing.cpu_microseconds, 3),
                "eosframework_ratio": round(standing.times_slower_than(ours), 3),
            }
            for standing in standings
        },
        "absent": absent,
    }
