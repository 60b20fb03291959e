"""Backfill jobs in the control topic, as far as workers need them.

`backfill/` writes the entries and interprets them fully; a worker needs a small part of them and no
Spark. A job without a suffix fills the live topics. Until its cutover, workers without committed
offsets would process its range once more, and keep state of both.

An audit needs the ranges of jobs and their progress. A task's progress is committed in the
transactions of its outputs, so it is to a job what committed offsets are to live workers. If a task
reads a partition from the log, the progress is an offset. If Spark sorts its rows (files, internal
topics), the progress is a number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eosframework.application.control_entries import damaged
from eosframework.application.control_topic import ControlState
from eosframework.application.internal_topics import task_counts
from eosframework.application.journal import KafkaJournal
from eosframework.engine.task.receipts import Series
from eosframework.errors import StartRefused
from eosframework.records import Position, TopicPartition
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


_UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class JobRange:
    """The part of one source partition that a backfill job processes.

    Args:
        job: its name.
        partition: of the source topic.
        first: its first offset in the log.
        end: the offset after it, where live workers begin after a cutover; None: not fixed yet.
        position: the next offset, or row, with the metadata committed with it.
        in_rows: the position counts rows.
        of_files: these rows come from files; the others from the log.
        complete: the task has processed all of it.
        is_cut_over: live workers resume at its end.
        has_receipts: outputs of the job have receipts.
    """

    job: str
    partition: TopicPartition
    first: int
    end: int | None
    position: Position
    in_rows: bool
    of_files: bool
    complete: bool
    is_cut_over: bool
    has_receipts: bool

    @property
    def offset(self) -> int:
        """The offset of its position."""
        assert self.position.offset is not None, "a job has a position in each partition"
        return self.position.offset


def job_ranges(journal: KafkaJournal) -> list[JobRange]:
    """Return the ranges of all jobs of an application, by job, topic and partition.

    Args:
        journal: of the application.

    Raises:
        ControlTopicDamaged: an entry cannot be read.
        ClusterUnreachable: the cluster did not answer, or a transaction stays open.
    """
    entries = journal.settled_under(PREFIX)
    keys = sorted(key for key in entries if key.count("/") == 1)
    try:
        return [one for key in keys for one in _ranges_of(key, entries)]
    except _UNREADABLE as error:
        raise damaged(
            f"an entry of a backfill job in {journal.topic}, with a key under {PREFIX!r},",
            f"{type(error).__name__}: {error}",
        ) from error


def _ranges_of(key: str, entries: Mapping[str, Any]) -> Iterator[JobRange]:
    job, tasks = entries[key], list(_tasks(key, entries))
    is_cut_over = f"{key}/cutover" in entries
    for topic, bounds in sorted(_bounds(key, entries).items()):
        of_files = topic in job.get("files", {})
        in_rows = of_files or topic in job.get("own_starts", {})
        for number, (first, end) in enumerate(bounds):
            name = f"{topic}/{number}"
            progress = next((task for task in tasks if name in task["positions"]), None)
            has_receipts = job.get("receipts", False)
            start = 0 if in_rows else first
            yield JobRange(
                job=key.removeprefix(PREFIX),
                partition=TopicPartition(topic, number),
                first=first,
                end=end,
                position=_position(topic, number, progress, Series(start), has_receipts),
                in_rows=in_rows,
                of_files=of_files,
                complete=progress is not None and progress["complete"],
                is_cut_over=is_cut_over,
                has_receipts=has_receipts,
            )


def _tasks(key: str, entries: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (entry for name, entry in entries.items() if name.startswith(f"{key}/task/"))


def _bounds(key: str, entries: Mapping[str, Any]) -> dict[str, list[tuple[int, int | None]]]:
    """Return the first offset and the end of each partition, by topic."""
    job = entries[key]
    found: dict[str, list[tuple[int, int | None]]] = {
        topic: [(one["first"], one["end"]) for one in ranges]
        for topic, ranges in job["ranges"].items()
    }
    for topic, starts in job.get("own_starts", {}).items():
        ends = entries.get(f"{key}/ends/{topic}") or [None] * len(starts)
        found[topic] = list(zip(starts, ends, strict=True))
    return found


def _position(
    topic: str,
    number: int,
    progress: Mapping[str, Any] | None,
    begun: Series,
    has_receipts: bool,
) -> Position:
    """Return the position of a task; one that has not begun is at the beginning of a numbering."""
    metadata, name = "eos1;0;0", f"{topic}/{number}"
    if progress is None:
        offset, numbering = begun.since, str(begun)
    else:
        offset, metadata = progress["positions"][name], progress["metadata"]
        numbering = progress.get("numberings", {}).get(name, str(begun))
    return Position(topic, number, offset, f"{metadata};{numbering}" if has_receipts else metadata)
