"""`eos-vs-alo`: what exactly-once costs against at-least-once, in alternated rounds."""

from __future__ import annotations

from dataclasses import asdict

from benchmarks.contestants.framework import A_PRODUCER_EACH, Framework
from benchmarks.contestants.work import Work
from benchmarks.intervals import CONFIDENCE, bootstrap_median
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input, speed_over_time
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session
from benchmarks.standings import figures

EXACTLY_ONCE = Framework("exactly once")
WITH_A_PRODUCER_EACH = Framework("exactly once, a producer each", A_PRODUCER_EACH)
AT_LEAST_ONCE = Framework("at least once", ("worker.guarantee=at_least_once",))

PADDING_BYTES = 800
"""Brings the values to about 1 KB."""

DEFAULT_ROUNDS = 15
DEFAULT_SECONDS = 20.0
WARM_UP_SECONDS = 2.0
TRIAL_RECORDS = 600_000
RESERVE = 2.0
"""The input is this much longer than a run at the trial's speed would read."""
GOAL = 0.97


def run(session: Session, options: Options, report: Report) -> None:
    """Run rounds of all three; every second one in the other order."""
    seconds = options.seconds or DEFAULT_SECONDS
    records = records_for(session, options, seconds, AT_LEAST_ONCE)
    contestants = (EXACTLY_ONCE, AT_LEAST_ONCE, WITH_A_PRODUCER_EACH)
    speeds: dict[Framework, list[Speed]] = {contestant: [] for contestant in contestants}
    for number in range(options.rounds or DEFAULT_ROUNDS):
        for contestant in contestants if number % 2 == 0 else reversed(contestants):
            speeds[contestant].append(timed_run(session, contestant, records, seconds))
        told = ", ".join(f"{c.name} {ss[-1].records_per_second:,.0f}" for c, ss in speeds.items())
        report.progress(f"round {number + 1}: {told}")
    _report(report, speeds, seconds)


def records_for(session: Session, options: Options, seconds: float, fastest: Framework) -> int:
    """Return the number of records for the fastest run, from a short run, which also warms up."""
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


def _report(report: Report, speeds: dict[Framework, list[Speed]], seconds: float) -> None:
    ratios = {
        contestant.name: [
            one.records_per_second / other.records_per_second
            for one, other in zip(speeds[contestant], speeds[AT_LEAST_ONCE], strict=True)
        ]
        for contestant in (EXACTLY_ONCE, WITH_A_PRODUCER_EACH)
    }
    intervals = {name: bootstrap_median(found) for name, found in ratios.items()}
    rounds = len(speeds[AT_LEAST_ONCE])
    table = Table(
        title=f"{rounds} rounds of {seconds:g} s each, 1 KB records, commits every 100 ms",
        columns=(
            *("guarantee", "records/s, median", "spread", "CPU µs/record"),
            *(f"ratio of rounds, median ({CONFIDENCE:.0%} interval)", "goal"),
        ),
        rows=[
            (
                contestant.name,
                *figures(runs),
                str(intervals.get(contestant.name, "")),
                f"{GOAL}" if contestant.name in intervals else "",
            )
            for contestant, runs in speeds.items()
        ],
    )
    data = {
        "seconds": seconds,
        "ratios": {name: [round(ratio, 4) for ratio in found] for name, found in ratios.items()},
        "intervals": {name: asdict(interval) for name, interval in intervals.items()},
        "records_per_second": {
            contestant.name: [round(speed.records_per_second) for speed in runs]
            for contestant, runs in speeds.items()
        },
    }
    report.add("eos-vs-alo", table, data)
