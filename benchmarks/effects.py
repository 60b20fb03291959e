"""`effects`: calls whose effects are journalled, compared with calls that may repeat.

The function answers after 20 ms and does nothing else, so the difference is the price of the
journal: two commits for the calls in flight.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.inputs import create_topics
from benchmarks.measure import CommittedOffsets, Speed, speed_over_time
from benchmarks.options import Options
from benchmarks.processes import Child, Command
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.application.topic_settings import TopicRole, settings_at_creation
from eosframework.txnid import effects_topic

IN_FLIGHT = (1, 64, 1000)
DEFAULT_RECORDS = 400_000
DEFAULT_SECONDS = 10.0
TOPOLOGY = Path(__file__).parent / "contestants" / "effects_topology.py"


class Calling(Framework):
    """A worker that calls a service.

    Args:
        in_flight: the most calls at a time.
        journal: their effects are journalled.
    """

    def __init__(self, in_flight: int, *, journal: bool) -> None:
        environment = {"BENCH_CONCURRENCY": str(in_flight)}
        environment |= {"BENCH_JOURNAL": "1m"} if journal else {}
        super().__init__(environment=environment, topology=TOPOLOGY)
        self._journal = journal

    def command(self, work: Work) -> Command:
        if self._journal:
            topic = effects_topic(work.application, "called")
            settings = settings_at_creation(TopicRole.EFFECTS)
            create_topics(work.bootstrap_servers, topic, settings=settings)
        return super().command(work)


def run(session: Session, options: Options, report: Report) -> None:
    """Measure both for each number of calls in flight."""
    records = options.records or DEFAULT_RECORDS
    seconds = options.seconds or DEFAULT_SECONDS
    source = session.input_topic(records)

    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> Speed:
        warm_up_seconds = min(3.0, seconds)
        return speed_over_time(
            offsets, child, records, warm_up_seconds=warm_up_seconds, seconds=seconds
        )

    rows: list[tuple[str, ...]] = []
    data: dict[str, float] = {}
    for in_flight in IN_FLIGHT:
        plain = session.run(Calling(in_flight, journal=False), source, measure)
        once = session.run(Calling(in_flight, journal=True), source, measure)
        report.progress(f"{in_flight} in flight are measured")
        ratio = once.records_per_second / plain.records_per_second
        rows.append(
            (
                f"{in_flight:,}",
                f"{plain.records_per_second:,.0f}",
                f"{once.records_per_second:,.0f}",
                f"{ratio:.2f}",
                f"{plain.cpu_microseconds_per_record:,.0f}",
                f"{once.cpu_microseconds_per_record:,.0f}",
            )
        )
        data |= {
            f"plain_{in_flight}": plain.records_per_second,
            f"once_{in_flight}": once.records_per_second,
        }
    columns = (
        "in flight",
        "map_async, records/s",
        "call_once, records/s",
        "ratio",
        "map_async, µs of CPU",
        "call_once, µs of CPU",
    )
    report.add("effects", Table("Calls of 20 ms, with and without a journal", columns, rows), data)
