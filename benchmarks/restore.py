"""`restore`: a worker with a million keys in its store, killed and started again.

The last time it is started without the store's files. Measured from the start of the process,
imports and all, to commits on every partition, while records keep coming.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.feeding import feeding
from benchmarks.inputs import create_topics, delete_topics, delete_topics_of
from benchmarks.measure import LOOK_SECONDS, CommittedOffsets
from benchmarks.options import Options
from benchmarks.processes import Child, ProcessFailed, running
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.application.topic_settings import TopicRole, settings_at_creation

DEFAULT_KEYS = 1_000_000
DEFAULT_KILLS = 5
GOAL_SECONDS = 5.0
FILL_SECONDS = 300.0
READY_SECONDS = 120.0

COUNTING = Framework(environment={"BENCH_EMIT": "commit"})


def run(session: Session, options: Options, report: Report) -> None:
    """Fill a store, kill its worker again and again, then take its files away as well."""
    keys = options.records or DEFAULT_KEYS
    work = session.work(session.input_topic(keys, keys=keys), discipline="count")
    settings = settings_at_creation(TopicRole.CHANGELOG)
    create_topics(session.bootstrap_servers, work.changelog_topic, settings=settings)
    offsets = CommittedOffsets(session.bootstrap_servers, work.application, work.input_topic)
    try:
        _fill(work, offsets, keys)
        report.progress(f"a store of {keys:,} keys is there")
        with feeding(session.bootstrap_servers, work.input_topic):
            # The log of writes is as long as it gets, and has to be read.
            first = _start(work, offsets)[0]
            kills = [_start(work, offsets)[0] for _ in range(options.rounds or DEFAULT_KILLS)]
            shutil.rmtree(work.directory / "stores")
            rebuilt, restored = _start(work, offsets)
    finally:
        offsets.close()
        delete_topics(session.bootstrap_servers, work.output_topic)
        delete_topics_of(session.bootstrap_servers, work.application)
    records = sum(event["records"] for event in restored)
    reading = max(event["seconds"] for event in restored)
    rows = [
        (
            f"killed when {keys:,} keys were just written: to commits on all partitions, s",
            f"{first:.2f}",
            "",
            f"< {GOAL_SECONDS:g}",
        ),
        (
            "killed in a trickle, s",
            f"{statistics.median(kills):.2f}",
            f"{max(kills):.2f}",
            f"< {GOAL_SECONDS:g}",
        ),
        ("the same without the store's files, s", f"{rebuilt:.2f}", "", ""),
        ("of it reading the changelog, s", f"{reading:.2f}", "", ""),
        ("changelog records/s", f"{records / reading:,.0f}", "", ""),
    ]
    table = Table("Restart of a stateful worker", ("what", "median", "longest", "goal"), rows)
    data = {"keys": keys, "first_seconds": first, "kill_seconds": kills}
    data |= {"rebuild_seconds": rebuilt}
    report.add("restore", table, data | {"changelog_records": records, "reading_seconds": reading})


def _fill(work: Work, offsets: CommittedOffsets, records: int) -> None:
    with running(COUNTING.command(work), _log_file(work)) as child:
        _wait(child, lambda: offsets.total() >= records, FILL_SECONDS, "the input's end")
        child.process.kill()


def _start(work: Work, offsets: CommittedOffsets) -> tuple[float, list[dict[str, Any]]]:
    """Start the worker that was killed, and kill it once it commits on every partition.

    Returns:
        How long that took, in seconds, and its events `state_restored`.
    """
    before = offsets.by_partition()
    began = time.monotonic()
    with running(COUNTING.command(work), _log_file(work)) as child:

        def all_moved() -> bool:
            now = offsets.by_partition()
            return all(new > old for new, old in zip(now, before, strict=True))

        _wait(child, all_moved, READY_SECONDS, "commits on every partition")
        seconds = time.monotonic() - began
        child.process.kill()
        return seconds, _events(child, "state_restored")


def _events(child: Child, name: str) -> list[dict[str, Any]]:
    events = (orjson.loads(line) for line in child.log.splitlines() if line.startswith("{"))
    return [event for event in events if event["event"] == name]


def _log_file(work: Work) -> Path:
    return work.directory / f"{work.application}.{time.monotonic_ns()}.log"


def _wait(child: Child, happened: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        child.require_running()
        if time.monotonic() > deadline:
            raise ProcessFailed(f"waited {seconds:g} s in vain for {what}:\n{child.log_tail()}")
        time.sleep(LOOK_SECONDS)
