"""Contestants in a discipline, in turns; `json`: the one that there are goals for."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.contestants.framework import A_PRODUCER_EACH, EACH, Framework
from benchmarks.contestants.handwritten import Handwritten
from benchmarks.contestants.quix import QuixStreams
from benchmarks.contestants.streams import KafkaStreams
from benchmarks.contestants.work import Contestant, Work
from benchmarks.disciplines import JSON, Discipline
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report
from benchmarks.session import Session
from benchmarks.standings import Field, Standing, enter

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 5
WARM_UPS = 2


def run(session: Session, options: Options, report: Report) -> None:
    """Let every contestant do the work of `json`."""
    records = options.records or DEFAULT_RECORDS
    warm_up(session, records, JSON)
    field = compete(session, replace(options, records=records), report, JSON)
    title = f"JSON, {records:,} records of about 225 bytes, exactly-once, commits every 100 ms"
    report.add("json", field.table(title), field.data())


def everybody() -> tuple[Contestant, ...]:
    """Return all who can take part, eosframework first."""
    return (
        Framework(),
        Framework(EACH, A_PRODUCER_EACH),
        Handwritten(),
        KafkaStreams(),
        QuixStreams(),
    )


def warm_up(session: Session, records: int, discipline: Discipline) -> None:
    """Let the broker's Java compile what a broker does."""
    for _ in range(WARM_UPS):
        turn(session, Standing(Handwritten(), "", records), discipline)


def compete(session: Session, options: Options, report: Report, discipline: Discipline) -> Field:
    """Let every contestant work in every round, each round beginning with another one."""
    records = options.records or DEFAULT_RECORDS
    field = enter(everybody(), records, dict(discipline.goals))
    for round_number in range(options.rounds or DEFAULT_ROUNDS):
        for standing in field.of_round(round_number):
            speed = turn(session, standing, discipline)
            standing.speeds.append(speed)
            report.progress(
                f"{discipline.name}, round {round_number + 1}: {standing.contestant.name} "
                f"{speed.records_per_second:,.0f} records/s"
            )
    return field


def turn(session: Session, standing: Standing, discipline: Discipline) -> Speed:
    """Let one contestant work through the input, and look at what it wrote."""
    records = standing.records
    # First, since rows count from their own time on.
    table_topic = session.topic_of(discipline.table, 1) if discipline.table else ""

    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> Speed:
        speed = speed_of_input(offsets, child, records)
        child.stop()
        discipline.require_done(session.bootstrap_servers, work.output_topic, records)
        return speed

    return session.run(
        standing.contestant,
        session.topic_of(discipline.made, records),
        measure,
        changelog=discipline.keeps,
        outputs=discipline.outputs,
        discipline=discipline.name,
        table_topic=table_topic,
    )
