"""`backfill`: a topic through a topology by Spark, beside Spark's own sink and a live worker.

Backfill and sink share a Spark session that has done both before, in turns; the clock runs from the
call to its return. The worker is measured as in `json`, in between.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time

import orjson
import psutil

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.inputs import delete_topics, delete_topics_of
from benchmarks.measure import CommittedOffsets, speed_of_input
from benchmarks.options import Options
from benchmarks.outputs import committed, require_doubled
from benchmarks.processes import Child, Command, ProcessFailed, running
from benchmarks.report import Report, Table
from benchmarks.session import Session

DEFAULT_RECORDS = 2_000_000
DEFAULT_ROUNDS = 5
WARM_UP_RECORDS = 20_000
LONGEST_SECONDS = 900.0
LOOK_SECONDS = 0.1

GOALS = {"sink": 0.9, "worker": 2.0}
"""Goal of the backfill's speed, as a multiple of each contestant's; twice the worker's where
there are four cores."""

NAMES = {
    "backfill": "eosframework backfill",
    "sink": "Spark's Kafka sink, at least once",
    "worker": "one live worker",
}


def run(session: Session, options: Options, report: Report) -> None:
    """Measure all three in every round, with the first of them in turns."""
    records = options.records or DEFAULT_RECORDS
    topic = session.input_topic(records)
    speeds: dict[str, list[float]] = {what: [] for what in NAMES}
    peaks: list[float] = []
    for number in range(options.rounds or DEFAULT_ROUNDS):
        order = ("backfill", "sink") if number % 2 == 0 else ("sink", "backfill")
        seconds, peak_megabytes = _spark(session, topic, records, order)
        peaks.append(peak_megabytes)
        for what, taken in seconds.items():
            speeds[what].append(records / taken)
        speeds["worker"].append(_worker(session, topic, records))
        told = ", ".join(f"{NAMES[what]} {found[-1]:,.0f}" for what, found in speeds.items())
        report.progress(f"round {number + 1}: {told} records/s; {peak_megabytes:.0f} MB")
    data = {"records": records, "records_per_second": speeds, "peak_megabytes": peaks}
    report.add("backfill", _table(records, speeds, peaks), data)


def _table(records: int, speeds: dict[str, list[float]], peaks: list[float]) -> Table:
    rows = [_row(what, found, speeds["backfill"]) for what, found in speeds.items()]
    memory = f"{max(peaks):.0f} MB"
    rows.append(("largest Python worker of Spark", memory, "", "", ""))
    return Table(
        title=f"Backfill of {records:,} JSON records from topic to topic",
        columns=("what", "records/s, median", "spread", "backfill / it", "goal"),
        rows=rows,
    )


def _row(what: str, found: list[float], backfill: list[float]) -> tuple[str, ...]:
    ratio = statistics.median(ours / its for ours, its in zip(backfill, found, strict=True))
    return (
        NAMES[what],
        f"{statistics.median(found):,.0f}",
        f"{min(found):,.0f} to {max(found):,.0f}",
        "" if what == "backfill" else f"{ratio:.2f}",
        f"{GOALS[what]:g}" if what in GOALS else "",
    )


def _spark(
    session: Session, topic: str, records: int, order: tuple[str, ...]
) -> tuple[dict[str, float], float]:
    """Return how many seconds each took, and the megabytes of the largest Python worker."""
    warm_up = [(what, session.work(topic), WARM_UP_RECORDS) for what in order]
    measured = [(what, session.work(topic), records) for what in order]
    steps = [
        f"{what},{work.application},{work.output_topic},{count}"
        for what, work, count in (*warm_up, *measured)
    ]
    program = [sys.executable, "-m", "benchmarks.contestants.backfill_program", *steps]
    log_file = session.directory / f"{measured[0][1].application}.log"
    try:
        with running(Command(program, measured[0][1].environment()), log_file) as child:
            peak_megabytes = watch_python_workers(child)
            lines = [orjson.loads(line) for line in child.log.splitlines() if '"seconds"' in line]
        for what, work, _ in measured:
            _verify(session, what, work, records)
    finally:
        for _, work, _ in (*warm_up, *measured):
            delete_topics(session.bootstrap_servers, work.output_topic)
            delete_topics_of(session.bootstrap_servers, work.application)
    return {line["what"]: line["seconds"] for line in lines[len(warm_up) :]}, peak_megabytes


def watch_python_workers(child: Child) -> float:
    """Wait for the end of the program; return the most memory that a Python worker had, in MB."""
    workers = _Workers(child)
    deadline = time.monotonic() + LONGEST_SECONDS
    with workers:
        while (code := child.process.poll()) is None:
            if time.monotonic() > deadline:
                raise ProcessFailed(f"not done after {LONGEST_SECONDS:g} s:\n{child.log_tail()}")
            time.sleep(LOOK_SECONDS)
    if code != 0:
        raise ProcessFailed(f"ended with {code}; its last lines:\n{child.log_tail()}")
    return workers.peak_bytes / 1e6


def _verify(session: Session, what: str, work: Work, records: int) -> None:
    if what == "backfill":
        require_doubled(session.bootstrap_servers, work.output_topic, records)
        return
    count = sum(1 for _ in committed(session.bootstrap_servers, work.output_topic))
    if count < records:
        raise ProcessFailed(f"{work.output_topic} holds {count} records; expected {records}")


def _worker(session: Session, topic: str, records: int) -> float:
    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> float:
        speed = speed_of_input(offsets, child, records)
        child.stop()
        require_doubled(session.bootstrap_servers, work.output_topic, records)
        return speed.records_per_second

    return session.run(Framework(), topic, measure)


class _Workers:
    """Looks at the memory of the Python processes that Spark forks from its daemon."""

    def __init__(self, child: Child) -> None:
        self.peak_bytes = 0
        self._child = child
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            for process in self._child.descendants():
                with contextlib.suppress(psutil.Error):
                    if "pyspark.daemon" in process.cmdline():
                        self.peak_bytes = max(self.peak_bytes, process.memory_info().rss)
