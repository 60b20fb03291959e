"""Backfill jobs in the control topic, as far as workers need them.

`backfill/` writes the entries and interprets them fully; a worker needs a small part of them and no
Spark. A job without a suffix fills the live topics. Until its cutover, workers without committed
offsets would process its range once more, and keep state of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eosframework.application.control_topic import ControlState
from eosframework.application.internal_topics import task_counts
from eosframework.errors import StartRefused
from eosframework.records import Position
from eosframework.topology.graph.graph import Graph

PREFIX = "backfill/"

WRITER_HEADER = "__eos.backfill.writer"
"""Header of a backfill's records to internal topics: the task that wrote them. Records of one
writer are in its order; those of several are merged by time."""


@dataclass(frozen=True, slots=True)
class JobStanding:
    """Progress of a backfill job.

    Args:
        suffix: of the topics and tables that it fills alongside the live ones; None: the live ones.
        complete_tasks: the number of its tasks that have processed their range.
        tasks: the number of all of them.
        complete: everything of its range is processed, and in its tables.
        cut_over: live workers resume where it ends.
        ranges: by source topic, for each partition whether the job reads a record of it.
    """

    name: str
    suffix: str | None
    complete_tasks: int
    tasks: int
    complete: bool
    cut_over: bool
    ranges: Mapping[str, tuple[bool, ...]]

    def __str__(self) -> str:
        """Return the progress as text."""
        if self.cut_over:
            return "cut over"
        if self.complete:
            return "complete" if self.suffix else "complete, not cut over"
        return f"not complete: {self.complete_tasks} of {self.tasks} tasks are"

    def as_data(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        data = asdict(self)
        del data["ranges"]
        return data


def backfill_jobs(
    graph: Graph, control: ControlState, partitions: Mapping[str, int]
) -> list[JobStanding]:
    """Return the backfill jobs of an application, sorted by name.

    Args:
        graph: of the application.
        control: the content of its control topic.
        partitions: number of partitions by topic, as it is now.
    """
    entries = control.entries
    expected = [
        f"{name}/{number}"
        for name, count in task_counts(graph, partitions).items()
        for number in range(count)
    ]
    jobs: list[JobStanding] = []
    for key in sorted(k for k in entries if k.startswith(PREFIX) and k.count("/") == 1):
        done = sum(entries.get(f"{key}/task/{t}", {}).get("complete", False) for t in expected)
        has_tables = not graph.table_sinks or f"{key}/tables" in entries
        jobs.append(
            JobStanding(
                name=key.removeprefix(PREFIX),
                suffix=entries[key].get("suffix"),
                complete_tasks=done,
                tasks=len(expected),
                complete=done == len(expected) and has_tables,
                cut_over=f"{key}/cutover" in entries,
                ranges=_ranges(entries[key]),
            )
        )
    return jobs


def refuse_unfinished_jobs(
    graph: Graph, jobs: Sequence[JobStanding], committed: Sequence[Position]
) -> None:
    """Refuse workers that would process the range of a job without a cutover.

    If every partition of the range has a committed offset, live workers have positions of their
    own: they process the records after the range of a job that fills no state.

    Args:
        graph: of the application.
        jobs: of the application.
        committed: positions of its group.

    Raises:
        StartRefused: names the job and the two ways to resume.
    """
    read = set(graph.source_topics)
    new = [p.topic_partition for p in committed if p.offset is None and p.topic in read]
    for job in jobs:
        if job.cut_over or job.suffix is not None:
            continue
        again = [p for p in new if p.partition in _read(job.ranges.get(p.topic, ()))]
        if not again:
            continue
        first = (
            f"eosframework backfill cutover APP --job {job.name}, and workers resume where it ends"
        )
        if not job.complete:
            first = f"eosframework backfill run APP --job {job.name} to its end, then {first}"
        raise StartRefused(
            f"backfill job {job.name!r} of application {graph.application!r} is {job}, and "
            f"{again[0]} has no committed offset: workers would process once more what the job "
            f"has processed. Either finish it: {first}. Or give it up: eosframework reset APP "
            f"removes its progress and state (what it wrote to outputs and tables stays), and "
            f"workers start anew"
        )


def _read(ranges: Sequence[bool]) -> set[int]:
    return {number for number, is_read in enumerate(ranges) if is_read}


def _ranges(job: Mapping[str, Any]) -> dict[str, tuple[bool, ...]]:
    """Return the partitions that a job reads; all of them for a topic that is read from files."""
    files = job.get("files", {})
    return {
        topic: tuple(topic in files or one["first"] < one["end"] for one in ranges)
        for topic, ranges in job.get("ranges", {}).items()
    }
