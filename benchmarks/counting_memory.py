"""`count-memory`: how much memory a worker takes that counts more keys than fit into its cache."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.contestants.work import Work
from benchmarks.counting import framework
from benchmarks.inputs import create_topics, load
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input
from benchmarks.memory import PeakMemory
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.config import StateSettings

DEFAULT_RECORDS = 10_000_000


def run(session: Session, options: Options, report: Report) -> None:
    """Count records of which each has another key, with the default settings."""
    records = options.records or DEFAULT_RECORDS
    topic = session.name("keys")
    create_topics(session.bootstrap_servers, topic)
    load(session.bootstrap_servers, topic, _distinct(records))

    def measure(offsets: CommittedOffsets, child: Child, _: Work) -> tuple[Speed, float]:
        with PeakMemory(child.pid) as peak:
            return speed_of_input(offsets, child, records), peak.bytes / 1e6

    speed, peak = session.run(
        framework("commit"), topic, measure, changelog=True, discipline="count"
    )
    cache = StateSettings().cache_bytes / 1e6
    row = (f"{peak:.0f}", f"{cache:.0f}", f"{speed.records_per_second:,.0f}")
    table = Table(
        title=f"Resident memory of one worker that counts {records:,} keys",
        columns=("peak, MB", "of it state.cache_bytes, MB", "records/s"),
        rows=[row],
    )
    data = {"records": records, "peak_megabytes": peak, "cache_megabytes": cache}
    report.add("count-memory", table, data)


def _distinct(records: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys in no order that means anything to a store."""
    for number in range(records):
        yield b"%020d" % (number * 2654435761 % 2**32), b'{"order":%d}' % number
