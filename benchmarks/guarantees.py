"""`eos-vs-alo`: what exactly-once costs against at-least-once, in alternated pairs of runs."""

from __future__ import annotations

import statistics

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.intervals import CONFIDENCE, bootstrap_median
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input, speed_over_time
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session

EXACTLY_ONCE = Framework("exactly once", ("worker.guarantee=exactly_once",))
AT_LEAST_ONCE = Framework("at least once", ("worker.guarantee=at_least_once",))

PADDING_BYTES = 800
"""Brings the values to about 1 KB."""

DEFAULT_PAIRS = 15
DEFAULT_SECONDS = 20.0
WARM_UP_SECONDS = 2.0
TRIAL_RECORDS = 600_000
RESERVE = 2.0
"""The input is this much longer than a run at the trial's speed would read."""
GOAL = 0.95


def run(session: Session, options: Options, report: Report) -> None:
    """Run pairs; every second one begins with at-least-once."""
    seconds = options.seconds or DEFAULT_SECONDS
    records = records_for(session, options, seconds, AT_LEAST_ONCE)
    ratios: list[float] = []
    speeds: dict[Framework, list[Speed]] = {EXACTLY_ONCE: [], AT_LEAST_ONCE: []}
    for number in range(options.rounds or DEFAULT_PAIRS):
        order = (EXACTLY_ONCE, AT_LEAST_ONCE)
        for contestant in order if number % 2 == 0 else reversed(order):
            speeds[contestant].append(timed_run(session, contestant, records, seconds))
        exactly, at_least = (speeds[contestant][-1].records_per_second for contestant in order)
        ratios.append(exactly / at_least)
        report.progress(f"pair {number + 1}: {exactly:,.0f} / {at_least:,.0f} = {ratios[-1]:.3f}")
    _report(report, ratios, speeds, seconds)


def records_for(session: Session, options: Options, seconds: float, fastest: Framework) -> int:
    """How many records the fastest run will need: tell by a short run, which also warms up."""
    if options.records:
        return options.records
    trial = session.input_topic(TRIAL_RECORDS, padding_bytes=PADDING_BYTES)
    speed = session.run(
        fastest,
        trial,
        lambda offsets, child, _: speed_of_input(offsets, child, TRIAL_RECORDS),
    )
    return int(speed.records_per_second * (WARM_UP_SECONDS + seconds + 1) * RESERVE)


def timed_run(session: Session, contestant: Framework, records: int, seconds: float) -> Speed:
    """Let one contestant work for a time."""

    def measure(offsets: CommittedOffsets, child: Child, _: Work) -> Speed:
        return speed_over_time(
            offsets, child, records, warm_up_seconds=WARM_UP_SECONDS, seconds=seconds
        )

    topic = session.input_topic(records, padding_bytes=PADDING_BYTES)
    return session.run(contestant, topic, measure)


def _report(
    report: Report, ratios: list[float], speeds: dict[Framework, list[Speed]], seconds: float
) -> None:
    interval = bootstrap_median(ratios)
    rows: list[tuple[str, ...]] = []
    for contestant, runs in speeds.items():
        rates = [speed.records_per_second for speed in runs]
        rows.append(
            (
                contestant.name,
                f"{statistics.median(rates):,.0f}",
                f"{min(rates):,.0f} to {max(rates):,.0f}",
                f"{statistics.median(s.cpu_microseconds_per_record for s in runs):.2f}",
            )
        )
    rows.append((f"ratio of pairs, median ({CONFIDENCE:.0%} interval)", str(interval), "", ""))
    rows.append(("goal", f"{GOAL}", "", ""))
    table = Table(
        title=f"{len(ratios)} pairs of runs of {seconds:g} s, 1 KB records, commits every 100 ms",
        columns=("guarantee", "records/s, median", "spread", "CPU µs/record"),
        rows=rows,
    )
    data = {
        "seconds": seconds,
        "ratios": [round(ratio, 4) for ratio in ratios],
        "median": interval.median,
        "low": interval.low,
        "high": interval.high,
        "records_per_second": {
            contestant.name: [round(speed.records_per_second) for speed in runs]
            for contestant, runs in speeds.items()
        },
    }
    report.add("eos-vs-alo", table, data)
