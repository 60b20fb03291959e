"""`protection-cpu`: the protection's share of the CPU time of a worker under full load.

What the protection does, it does per second and producer and per round of commits, and nothing
per record. Under full load two runs of the same worker differ by 5% in CPU time per record, which
hides that. So it is measured where little else happens: at a trickle that keeps every task
committing every 100 ms. The difference, in CPU seconds per second, is set against what a worker
uses under full load.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.feeding import feeding
from benchmarks.guarantees import records_for, timed_run
from benchmarks.inputs import create_topics
from benchmarks.intervals import CONFIDENCE, bootstrap_median
from benchmarks.measure import CommittedOffsets
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session

PROTECTED = Framework("protected")
UNPROTECTED = Framework("protection off", module="benchmarks.contestants.unprotected_worker")

DEFAULT_PAIRS = 6
DEFAULT_SECONDS = 15.0
WARM_UP_SECONDS = 3.0
FULL_LOADS = 3
GOAL = 1.02


def run(session: Session, options: Options, report: Report) -> None:
    """Run pairs at a trickle, every second one in the other order; then full loads."""
    seconds = options.seconds or DEFAULT_SECONDS
    topic = session.name("trickle")
    create_topics(session.bootstrap_servers, topic)
    used: dict[Framework, list[float]] = {PROTECTED: [], UNPROTECTED: []}
    for number in range(options.rounds or DEFAULT_PAIRS):
        order = (PROTECTED, UNPROTECTED)
        for contestant in order if number % 2 == 0 else reversed(order):
            used[contestant].append(_at_a_trickle(session, contestant, topic, seconds))
        pair = [1000 * used[contestant][-1] for contestant in order]
        report.progress(f"pair {number + 1}: {pair[0]:.1f} / {pair[1]:.1f} ms of CPU a second")
    records = records_for(session, options, seconds, PROTECTED)
    full = [_at_full_load(session, records, seconds) for _ in range(FULL_LOADS)]
    _report(report, used, statistics.median(full), seconds)


def _at_a_trickle(session: Session, contestant: Framework, topic: str, seconds: float) -> float:
    """Return the CPU seconds per second of a worker whose tasks all commit all the time."""

    def measure(offsets: CommittedOffsets, child: Child, _: Work) -> float:
        with feeding(session.bootstrap_servers, topic):
            before = offsets.total()
            while offsets.total() == before:
                child.require_running()
                time.sleep(0.1)
            time.sleep(WARM_UP_SECONDS)
            began, cpu_seconds = time.monotonic(), child.cpu_seconds()
            time.sleep(seconds)
            child.require_running()
            return (child.cpu_seconds() - cpu_seconds) / (time.monotonic() - began)

    return session.run(contestant, topic, measure)


def _at_full_load(session: Session, records: int, seconds: float) -> float:
    """Return the CPU seconds per second of a protected worker."""
    speed = timed_run(session, PROTECTED, records, seconds)
    return speed.cpu_seconds / speed.seconds


def _report(
    report: Report, used: dict[Framework, list[float]], full: float, seconds: float
) -> None:
    ratios = [
        1 + (protected - unprotected) / (full - protected + unprotected)
        for protected, unprotected in zip(used[PROTECTED], used[UNPROTECTED], strict=True)
    ]
    interval = bootstrap_median(ratios)
    rows = [
        (
            f"{contestant.name}, at a trickle",
            f"{1000 * statistics.median(runs):.1f}",
            f"{1000 * min(runs):.1f} to {1000 * max(runs):.1f}",
        )
        for contestant, runs in used.items()
    ]
    rows.append(("protected, under full load", f"{1000 * full:.0f}", ""))
    rows.append((f"ratio under full load ({CONFIDENCE:.0%} interval)", str(interval), ""))
    rows.append(("goal", f"at most {GOAL}", ""))
    table = Table(
        title=f"{len(ratios)} pairs of {seconds:g} s, 4 tasks, commits every 100 ms",
        columns=("worker", "CPU ms/s, median", "spread"),
        rows=rows,
    )
    data = {
        "ratios": [round(ratio, 4) for ratio in ratios],
        "median": interval.median,
        "low": interval.low,
        "high": interval.high,
        "cpu_seconds_per_second": {
            contestant.name: [round(share, 5) for share in runs]
            for contestant, runs in used.items()
        },
        "full_load": round(full, 4),
    }
    report.add("protection-cpu", table, data)
