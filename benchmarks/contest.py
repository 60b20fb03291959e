"""`json`: the same work by every contestant, in turns."""

from __future__ import annotations

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.handwritten import Handwritten
from benchmarks.contestants.quix import QuixStreams
from benchmarks.contestants.streams import KafkaStreams
from benchmarks.contestants.work import Work
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input
from benchmarks.options import Options
from benchmarks.outputs import require_doubled
from benchmarks.processes import Child
from benchmarks.report import Report
from benchmarks.session import Session
from benchmarks.standings import Standing, enter

GOALS = {"hand-written loop": 0.8, "Kafka Streams": 1.5, "Quix Streams": 5.0}
"""What eosframework's speed should be, as a multiple of each other one's."""

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 5
WARM_UPS = 2


def run(session: Session, options: Options, report: Report) -> None:
    """Let every contestant work in every round, each round beginning with another one."""
    records = options.records or DEFAULT_RECORDS
    field = enter((Framework(), Handwritten(), KafkaStreams(), QuixStreams()), records, GOALS)
    for _ in range(WARM_UPS):
        _turn(session, Standing(Handwritten(), "", records))
    for round_number in range(options.rounds or DEFAULT_ROUNDS):
        for standing in field.of_round(round_number):
            speed = _turn(session, standing)
            standing.speeds.append(speed)
            report.progress(
                f"round {round_number + 1}: {standing.contestant.name} "
                f"{speed.records_per_second:,.0f} records/s"
            )
    title = f"JSON, {records:,} records of about 225 bytes, exactly-once, commits every 100 ms"
    report.add("json", field.table(title), field.data())


def _turn(session: Session, standing: Standing) -> Speed:
    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> Speed:
        speed = speed_of_input(offsets, child, standing.records)
        child.stop()
        require_doubled(session.bootstrap_servers, work.output_topic, standing.records)
        return speed

    topic = session.input_topic(standing.records)
    return session.run(standing.contestant, topic, measure)
