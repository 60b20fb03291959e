"""`ceilings`: eosframework beside what the Kafka client does at most with the same records."""

from __future__ import annotations

from benchmarks.contest import turn, warm_up
from benchmarks.contestants.ceiling import Ceiling
from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.disciplines import JSON, PASSTHROUGH, Discipline, orders
from benchmarks.measure import CommittedOffsets, Speed, WrittenRecords, speed_of_input
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report
from benchmarks.session import Session
from benchmarks.standings import Standing, enter

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 3

COPY = Discipline(
    PASSTHROUGH.name,
    "the same records as they are",
    orders,
    PASSTHROUGH.of_inputs,
    PASSTHROUGH.of_output,
)
DOES = {"eosframework, JSON changed": JSON, "eosframework, as they are": COPY}


def run(session: Session, options: Options, report: Report) -> None:
    """Measure the worker and each half of its work alone, in turns."""
    records = (options.records or DEFAULT_RECORDS) // 1000 * 1000
    field = enter(
        (
            *(Framework(name) for name in DOES),
            Ceiling("consume only", "consume", records),
            Ceiling("produce only", "produce", records),
            Ceiling("produce only, in transactions", "transactions", records),
            Ceiling("produce_batch only", "produce-batch", records),
        ),
        records,
        {},
    )
    warm_up(session, records, JSON)
    for number in range(options.rounds or DEFAULT_ROUNDS):
        for standing in field.of_round(number):
            standing.speeds.append(_turn(session, standing))
            report.progress(
                f"round {number + 1}: {standing.contestant.name} "
                f"{standing.speeds[-1].records_per_second:,.0f} records/s"
            )
    title = f"{records:,} JSON records of about 225 bytes: the work, and halves of it alone"
    report.add("ceilings", field.table(title), field.data())


def _turn(session: Session, standing: Standing) -> Speed:
    contestant, records = standing.contestant, standing.records
    if not isinstance(contestant, Ceiling):
        return turn(session, standing, DOES[contestant.name])

    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> Speed:
        if contestant.mode == "consume":
            return speed_of_input(offsets, child, records)
        written = WrittenRecords(session.bootstrap_servers, work.output_topic)
        try:
            return speed_of_input(written, child, records)
        finally:
            written.close()

    return session.run(contestant, session.topic_of(orders, records), measure)
