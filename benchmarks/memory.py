"""`memory`: how much memory a worker takes while it works through a backlog."""

from __future__ import annotations

import contextlib
import threading

import psutil

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.measure import CommittedOffsets, speed_of_input
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 3
GOAL_MEGABYTES = 200
LOOK_SECONDS = 0.01


def run(session: Session, options: Options, report: Report) -> None:
    """Watch one worker's resident memory over the whole backlog."""
    records = options.records or DEFAULT_RECORDS
    topic = session.input_topic(records)
    peaks = [_peak_megabytes(session, topic, records) for _ in range(options.rounds or 3)]
    table = Table(
        title=f"Resident memory of one worker with a backlog of {records:,} records",
        columns=("runs", "largest peak, MB", "peaks, MB", "goal, MB"),
        rows=[
            (
                str(len(peaks)),
                f"{max(peaks):.0f}",
                ", ".join(f"{peak:.0f}" for peak in peaks),
                f"< {GOAL_MEGABYTES}",
            )
        ],
    )
    report.add("memory", table, {"records": records, "peak_megabytes": peaks})


def _peak_megabytes(session: Session, topic: str, records: int) -> float:
    def measure(offsets: CommittedOffsets, child: Child, _: Work) -> float:
        with PeakMemory(child.pid) as peak:
            speed_of_input(offsets, child, records)
        return peak.bytes / 1e6

    return session.run(Framework(), topic, measure)


class PeakMemory:
    """Looks at the resident memory of a process every `LOOK_SECONDS`."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            while not self._done.wait(LOOK_SECONDS):
                self.bytes = max(self.bytes, self._process.memory_info().rss)
