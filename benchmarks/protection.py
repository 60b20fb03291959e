"""`protection`: what replacing a producer costs a round, and how often it happens for nothing."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.feeding import feeding
from benchmarks.inputs import create_topics
from benchmarks.measure import CommittedOffsets
from benchmarks.options import Options
from benchmarks.processes import Child, ProcessFailed
from benchmarks.report import Report, Table
from benchmarks.session import Session

TASKS = (4, 64)
DEFAULT_BREAKS = 60
BREAK_SECONDS = 3.0
DEFAULT_HEALTHY_SECONDS = 25 * 60.0
HEALTHY_COMMIT_SECONDS = 0.5
IDLE_SECONDS = 660.0
"""Longer than the 10 minutes after which a broker closes an idle connection."""
WARM_UP_SECONDS = 10.0
"""The first rounds open connections."""
STARTED_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Round:
    """One round of commits, as `contestants/watched_worker.py` writes it."""

    at: float
    seconds: float
    producers: int
    recycled: int


def run(session: Session, options: Options, report: Report) -> None:
    """Break connections of workers with few and many tasks; then leave such workers in peace.

    Raises:
        ProcessFailed: a worker ended, or its rounds show nothing.
    """
    breaks = options.rounds or DEFAULT_BREAKS
    costs = {tasks: _rounds(session, tasks, breaks=breaks) for tasks in TASKS}
    _report_costs(report, costs)
    report.progress("workers in peace")
    seconds = options.seconds or DEFAULT_HEALTHY_SECONDS
    with ThreadPoolExecutor(len(TASKS)) as pool:
        healthy = pool.map(partial(_rounds, session, seconds=seconds), TASKS)
        _report_alarms(report, dict(zip(TASKS, healthy, strict=True)), seconds)


def _rounds(
    session: Session, tasks: int, *, breaks: int | None = None, seconds: float = 0
) -> list[Round]:
    """Let a worker with so many tasks run, and return its rounds after it warmed up.

    Args:
        breaks: how often connections are broken; None: the worker is left in peace for `seconds`,
            with every second task idle for longer than its connections live.
    """
    topic = session.name(f"tasks.{tasks}")
    create_topics(session.bootstrap_servers, topic, partitions=tasks)
    file = session.directory / f"{topic}.rounds"
    environment = {"BENCH_ROUNDS": str(file)}
    settings: tuple[str, ...] = ()
    if breaks is None:
        settings = (f"worker.commit_interval_seconds={HEALTHY_COMMIT_SECONDS}",)
    else:
        seconds = breaks * BREAK_SECONDS
        environment["BENCH_BREAK_SECONDS"] = str(BREAK_SECONDS)
        environment["BENCH_BROKER"] = session.bootstrap_servers.rpartition(":")[2]

    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> list[Round]:
        with _fed(session, topic, tasks, some_idle=breaks is None):
            return _watch(child, file, seconds)

    worker = Framework(
        settings=settings, module="benchmarks.contestants.watched_worker", environment=environment
    )
    return session.run(worker, topic, measure)


@contextlib.contextmanager
def _fed(session: Session, topic: str, tasks: int, *, some_idle: bool) -> Iterator[None]:
    """Feed all tasks, or every second one all the time and the others at long intervals."""
    feed = partial(feeding, session.bootstrap_servers, topic)
    if not some_idle:
        with feed(pause_seconds=0.05, partitions=range(tasks)):
            yield
        return
    busy, idle = range(0, tasks, 2), range(1, tasks, 2)
    with (
        feed(pause_seconds=HEALTHY_COMMIT_SECONDS, partitions=busy),
        feed(pause_seconds=IDLE_SECONDS, partitions=idle),
    ):
        yield


def _watch(child: Child, file: Path, seconds: float) -> list[Round]:
    """Return the rounds of the `seconds` that begin when the worker is warm."""
    deadline = time.monotonic() + STARTED_SECONDS
    while not _read(file):
        child.require_running()
        if time.monotonic() > deadline:
            raise ProcessFailed(f"no round within {STARTED_SECONDS:g} s:\n{child.log_tail()}")
        time.sleep(0.1)
    begin = _read(file)[0].at + WARM_UP_SECONDS
    while time.monotonic() < begin + seconds:
        child.require_running()
        time.sleep(0.5)
    return [found for found in _read(file) if begin <= found.at < begin + seconds]


def _read(file: Path) -> list[Round]:
    """Return the rounds that are written completely."""
    if not file.exists():
        return []
    lines = file.read_bytes().splitlines(keepends=True)
    return [Round(**orjson.loads(line)) for line in lines if line.endswith(b"\n")]


def _report_costs(report: Report, costs: dict[int, list[Round]]) -> None:
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for tasks, rounds in costs.items():
        quiet = _quiet_seconds(rounds)
        kinds = {
            "one": [r for r in rounds if r.recycled == 1],
            "nine tenths or more": [r for r in rounds if r.recycled >= 0.9 * tasks],
        }
        for kind, found in kinds.items():
            delays = sorted((r.seconds - quiet) * 1000 for r in found)
            if delays:
                rows.append((str(tasks), kind, str(len(found)), *_median_and_p95(delays)))
        data[str(tasks)] = {"quiet_round_seconds": quiet, "rounds": [asdict(r) for r in rounds]}
    table = Table(
        title="By how much a round of commits takes longer when connections were broken",
        columns=("tasks", "producers replaced", "rounds", "median ms", "95th percentile ms"),
        rows=rows,
    )
    report.add("protection-cost", table, data)


def _report_alarms(report: Report, healthy: dict[int, list[Round]], seconds: float) -> None:
    rows: list[tuple[str, ...]] = []
    for tasks, rounds in healthy.items():
        alarms = [r for r in rounds if r.recycled]
        quiet = _quiet_seconds(rounds)
        delays = sorted((r.seconds - quiet) * 1000 for r in alarms)
        counts = (len(rounds), len(alarms), sum(r.recycled for r in rounds))
        transactions = sum(r.producers for r in rounds)
        delayed = _median_and_p95(delays) if delays else ("", "")
        rows.append((str(tasks), f"{transactions:,}", *(f"{n:,}" for n in counts), *delayed))
    table = Table(
        title=f"False alarms of a healthy worker in {seconds / 60:g} minutes, half its tasks idle",
        columns=(
            *("tasks", "transactions", "rounds", "with an alarm", "producers replaced"),
            *("delay, median ms", "95th percentile ms"),
        ),
        rows=rows,
    )
    data = {
        str(tasks): [asdict(r) for r in rounds if r.recycled] for tasks, rounds in healthy.items()
    }
    report.add("protection-alarms", table, {"seconds": seconds, "rounds": data})


def _quiet_seconds(rounds: Sequence[Round]) -> float:
    """Return what a round took that replaced no producer.

    Raises:
        ProcessFailed: there was none.
    """
    quiet = [r.seconds for r in rounds if not r.recycled]
    if not quiet:
        raise ProcessFailed(f"none of {len(rounds)} rounds was quiet; give it longer")
    return statistics.median(quiet)


def _median_and_p95(ordered: Sequence[float]) -> tuple[str, str]:
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return f"{statistics.median(ordered):.0f}", f"{p95:.0f}"
