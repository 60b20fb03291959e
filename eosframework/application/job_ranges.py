"""The ranges of backfill jobs and their progress, as far as an audit needs them.

`backfill/` writes the entries; see `spark/job/job_entry`. A task's progress is committed in the
transactions of its outputs, so it is to a job what committed offsets are to live workers. If a task
reads a partition from the log, the progress is an offset. If Spark sorts its rows (files, internal
topics), the progress is a number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eosframework.application.backfill_jobs import PREFIX
from eosframework.application.control_log import ControlLog
from eosframework.engine.task.receipts import Series
from eosframework.errors import ControlTopicDamaged
from eosframework.records import Position, TopicPartition

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


def job_ranges(log: ControlLog) -> list[JobRange]:
    """Return the ranges of all jobs of an application, by job, topic and partition.

    Args:
        log: of the application's control topic.

    Raises:
        ControlTopicDamaged: an entry cannot be read.
        ClusterUnreachable: the cluster did not answer, or a transaction stays open.
    """
    if not log.exists():
        return []
    entries = log.settled(PREFIX)
    keys = sorted(key for key in entries if key.count("/") == 1)
    try:
        return [one for key in keys for one in _ranges(key, entries)]
    except _UNREADABLE as error:
        raise ControlTopicDamaged(
            f"an entry of a backfill job in {log.topic} cannot be read ({type(error).__name__}: "
            f"{error}); its key begins with {PREFIX!r}. Read the topic from its beginning and "
            f"write the last good value of that key again; and allow only the application to "
            f"write to the topic"
        ) from error


def _ranges(key: str, entries: Mapping[str, Any]) -> Iterator[JobRange]:
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
