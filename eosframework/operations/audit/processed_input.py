"""The processed input: by partition, the stretches that live workers and backfill jobs processed.

A stretch is processed in order, under one position that is committed with its outputs: the group's
offset for live workers, the progress in the control topic for a job. With receipts the position has
the numbering of the outputs, so that books judge both alike.

A cutover joins two stretches. Live workers begin at the end of the job's range and continue its
numbering, so that job and workers are one stretch from the beginning of the range on.

Where Spark sorted the rows of a task, the job's stretch is not one of the log: it consists of rows,
under the name that their receipts have (`receipts.row_origin`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eosframework.application.job_ranges import JobRange
from eosframework.processing.transaction.receipts import Series, row_origin
from eosframework.records import Position, TopicPartition


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records of one input partition that were processed in order, up to a position.

    Args:
        position: the next offset, with its metadata.
        first: offset at which processing began; None: unknown.
        end: offset at which the range of a job ends; None: live workers continue.
        job: None: of live workers, after the cutover of a job if there was one.
        is_continued: live workers continued the numbering for some time, and ended it then.
    """

    position: Position
    first: int | None = None
    end: int | None = None
    job: str | None = None
    is_continued: bool = False

    @property
    def offset(self) -> int:
        """The next offset."""
        assert self.position.offset is not None, "a stretch has a position"
        return self.position.offset

    @property
    def series(self) -> Series | None:
        """The numbering at its position; None: its outputs have no receipts."""
        return Series.parse(self.position.metadata)


@dataclass(frozen=True, slots=True)
class ProcessedInput:
    """The stretches of each partition, the newest one last, and all ranges of jobs."""

    stretches: Mapping[TopicPartition, Sequence[Stretch]]
    jobs: Sequence[JobRange] = ()

    @property
    def rows(self) -> list[JobRange]:
        """The parts of jobs that were processed as rows."""
        return [one for one in self.jobs if one.in_rows]

    @property
    def positions(self) -> dict[TopicPartition, Position]:
        """The newest position of each partition: live, or that of a job before its cutover."""
        return {p: found[-1].position for p, found in self.stretches.items()}

    def offset_of(self, p: TopicPartition, stretch: Stretch) -> int:
        """Return the next offset of a stretch that an earlier reading found.

        After a cutover since then, or if live workers continued the numbering, it is theirs.
        """
        found = self.stretches.get(p, ())
        same = [one for one in found if one.job == stretch.job]
        if stretch.is_continued or not same:
            same = [*same, *found[-1:]]
        return max((one.offset for one in same), default=stretch.offset)


def processed_input(
    live: Mapping[TopicPartition, Position], jobs: Sequence[JobRange]
) -> ProcessedInput:
    """Return the processed input.

    Args:
        live: committed positions of the group, with an offset.
        jobs: the ranges of backfill jobs over the same topics.
    """
    by_partition: dict[TopicPartition, list[JobRange]] = {}
    for one in jobs:
        by_partition.setdefault(one.partition, []).append(one)
    stretches: dict[TopicPartition, Sequence[Stretch]] = {}
    for p in sorted({*live, *by_partition}):
        if found := _stretches(live.get(p), by_partition.get(p, [])):
            stretches[p] = found
    return ProcessedInput(stretches, jobs)


def _stretches(live: Position | None, jobs: Sequence[JobRange]) -> list[Stretch]:
    found = [
        Stretch(one.position, one.first, one.end, one.job, one.is_cut_over)
        for one in sorted(jobs, key=lambda one: one.offset)
        if not one.in_rows
    ]
    if live is None:
        return found
    before = next((one for one in jobs if one.is_cut_over), None)
    if before is None:
        return [*found, Stretch(live)]
    first = before.end if before.in_rows else before.first
    newest = Stretch(live, first)
    if _continues(newest, before):
        found = [one for one in found if one.job != before.job]
    return [*found, newest]


def _continues(live: Stretch, job: JobRange) -> bool:
    """Return whether live workers have the numbering of the job, or none of both has one."""
    numbering = None if job.in_rows else Series.parse(job.position.metadata)
    if numbering is None or live.series is None:
        return numbering is None
    return live.series.since == numbering.since


def origin_of(rows: JobRange) -> TopicPartition:
    """Return the partition that stands for a job's rows in receipts."""
    return TopicPartition(row_origin(rows.job, rows.partition.topic), rows.partition.partition)
