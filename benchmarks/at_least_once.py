"""`at-least-once`: what exactly-once costs each contestant, in neighbouring runs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from benchmarks.contest import turn, warm_up
from benchmarks.contestants.framework import A_PRODUCER_EACH, EACH, Framework
from benchmarks.contestants.handwritten import Handwritten
from benchmarks.contestants.quix import QuixStreams
from benchmarks.contestants.streams import KafkaStreams
from benchmarks.contestants.work import Contestant
from benchmarks.disciplines import JSON
from benchmarks.measure import Speed
from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from benchmarks.standings import Standing, enter

DEFAULT_RECORDS = 500_000
DEFAULT_ROUNDS = 3
WITHOUT = {"BENCH_GUARANTEE": "at_least_once"}


@dataclass(frozen=True)
class Pair:
    """A contestant both ways, and its runs."""

    exactly: Contestant
    at_least: Contestant
    speeds: tuple[list[Speed], list[Speed]] = field(default_factory=lambda: ([], []))

    @property
    def ratio(self) -> float:
        """Exactly-once beside at-least-once: the median over the rounds."""
        exactly, at_least = (
            [speed.records_per_second for speed in speeds] for speeds in self.speeds
        )
        return statistics.median(one / other for one, other in zip(exactly, at_least, strict=True))


def run(session: Session, options: Options, report: Report) -> None:
    """Measure all pairs in every round, every second round the other way round."""
    records = options.records or DEFAULT_RECORDS
    settings = ("worker.guarantee=at_least_once",)
    pairs = [
        Pair(Framework(), Framework("eosframework, at least once", settings)),
        Pair(
            Framework(EACH, A_PRODUCER_EACH),
            Framework(f"{EACH}, at least once", settings),
        ),
        Pair(Handwritten(), Handwritten("hand-written loop, at least once", WITHOUT)),
        Pair(KafkaStreams(), KafkaStreams("Kafka Streams, at least once", WITHOUT)),
        Pair(QuixStreams(), QuixStreams("Quix Streams, at least once", WITHOUT)),
    ]
    warm_up(session, records, JSON)
    for number in range(options.rounds or DEFAULT_ROUNDS):
        for pair in pairs:
            _round(session, pair, records, backwards=number % 2 == 1)
            told = " / ".join(f"{s[-1].records_per_second:,.0f}" for s in pair.speeds if s)
            report.progress(f"round {number + 1}: {pair.exactly.name} {told or 'is absent'}")
    measured = [pair for pair in pairs if pair.speeds[0]]
    report.add(
        "at-least-once",
        Table(
            f"JSON, {records:,} records, commits every 100 ms: what the guarantee costs",
            (
                *("contestant", "exactly once, records/s", "at least once, records/s"),
                *("ratio, median of rounds", "CPU µs/record", "at least once"),
            ),
            [_row(pair) for pair in measured],
        ),
        {
            pair.exactly.name: {
                "ratio": round(pair.ratio, 3),
                "exactly_once": [round(s.records_per_second) for s in pair.speeds[0]],
                "at_least_once": [round(s.records_per_second) for s in pair.speeds[1]],
            }
            for pair in measured
        },
    )


def _round(session: Session, pair: Pair, records: int, *, backwards: bool) -> None:
    standings = enter((pair.exactly, pair.at_least), records, {}).standings
    found = list(zip(standings, pair.speeds, strict=False))
    for standing, speeds in reversed(found) if backwards else found:
        speeds.append(turn(session, Standing(standing.contestant, "", standing.records), JSON))


def _row(pair: Pair) -> tuple[str, ...]:
    speeds = [f"{statistics.median(s.records_per_second for s in ss):,.0f}" for ss in pair.speeds]
    cpu = [
        f"{statistics.median(s.cpu_microseconds_per_record for s in ss):.2f}" for ss in pair.speeds
    ]
    return (pair.exactly.name, *speeds, f"{pair.ratio:.2f}", *cpu)
