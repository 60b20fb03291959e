"""`protection-cpu`: the protection's share of the CPU time of a record, in alternated pairs."""

from __future__ import annotations

import statistics

from benchmarks.contestants.framework import Framework
from benchmarks.guarantees import DEFAULT_SECONDS, records_for, timed_run
from benchmarks.intervals import CONFIDENCE, bootstrap_median
from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session

PROTECTED = Framework("protected")
UNPROTECTED = Framework("protection off", module="benchmarks.contestants.unprotected_worker")

DEFAULT_PAIRS = 12
GOAL = 1.02


def run(session: Session, options: Options, report: Report) -> None:
    """Run pairs; every second one begins with the unprotected worker."""
    seconds = options.seconds or DEFAULT_SECONDS
    records = records_for(session, options, seconds, UNPROTECTED)
    cpu: dict[Framework, list[float]] = {PROTECTED: [], UNPROTECTED: []}
    for number in range(options.rounds or DEFAULT_PAIRS):
        order = (PROTECTED, UNPROTECTED)
        for contestant in order if number % 2 == 0 else reversed(order):
            speed = timed_run(session, contestant, records, seconds)
            cpu[contestant].append(speed.cpu_microseconds_per_record)
        pair = [cpu[contestant][-1] for contestant in order]
        report.progress(f"pair {number + 1}: {pair[0]:.3f} / {pair[1]:.3f} µs")
    _report(report, cpu, seconds)


def _report(report: Report, cpu: dict[Framework, list[float]], seconds: float) -> None:
    ratios = [a / b for a, b in zip(cpu[PROTECTED], cpu[UNPROTECTED], strict=True)]
    interval = bootstrap_median(ratios)
    rows = [
        (contestant.name, f"{statistics.median(runs):.3f}", f"{min(runs):.3f} to {max(runs):.3f}")
        for contestant, runs in cpu.items()
    ]
    rows.append((f"ratio of pairs, median ({CONFIDENCE:.0%} interval)", str(interval), ""))
    rows.append(("goal", f"at most {GOAL}", ""))
    table = Table(
        title=f"{len(ratios)} pairs of runs of {seconds:g} s, 1 KB records, commits every 100 ms",
        columns=("producers", "CPU µs/record, median", "spread"),
        rows=rows,
    )
    data = {
        "ratios": [round(ratio, 4) for ratio in ratios],
        "median": interval.median,
        "low": interval.low,
        "high": interval.high,
    }
    report.add("protection-cpu", table, data)
