"""The status of a job: progress of its tasks, rates and estimated time left.

Positions give the share of a task's range where all its input is read from Kafka by offsets. Rows
of files and of internal topics are numbered as they come, so only their number so far is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eosframework.backfill.job.job_entry import Job, JobState, TaskProgress
from eosframework.backfill.job.stages import Stage, stages
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph

RATE_SECONDS = 60.0
"""Period of a rate, once a job has been watched for so long."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One task.

    Args:
        records: processed input records.
        done: processed offsets of its range; None: unknown.
        total: offsets of its range; None: unknown.
        written_at: time of the last commit, in milliseconds since the epoch; None: never.
    """

    sub_topology: str
    partition: int
    records: int
    done: int | None
    total: int | None
    complete: bool
    late: int
    skipped: int
    dead_letters: int
    written_at: int | None


@dataclass(frozen=True, slots=True)
class StageStatus:
    """One stage with its tasks.

    Args:
        per_second: records; None: unknown, or no task is running.
        seconds_left: None: unknown.
    """

    name: str
    tasks: Sequence[TaskStatus]
    per_second: float | None
    seconds_left: float | None

    @property
    def records(self) -> int:
        """Processed input records."""
        return sum(task.records for task in self.tasks)

    @property
    def done(self) -> int | None:
        """Processed offsets of all tasks; None: unknown for a task."""
        return _sum([task.done for task in self.tasks])

    @property
    def total(self) -> int | None:
        """Offsets of the ranges of all tasks; None: unknown for a task."""
        return _sum([task.total for task in self.tasks])

    @property
    def complete(self) -> bool:
        """True if all of its tasks are; a job of another topology has none of them."""
        return bool(self.tasks) and all(task.complete for task in self.tasks)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job with its stages, in execution order.

    Args:
        tables: the tables have all rows; None: there are no table sinks.
    """

    job: Job
    stages: Sequence[StageStatus]
    tables: bool | None
    cut_over_at: int | None

    @property
    def complete(self) -> bool:
        """True if all stages are, including that of the tables."""
        return self.tables is not False and all(stage.complete for stage in self.stages)

    def as_data(self, *, with_tasks: bool = True) -> dict[str, Any]:
        """Return it as plain data, for JSON.

        Args:
            with_tasks: include the stages with their tasks.
        """
        report: dict[str, Any] = {
            "job": self.job.name,
            "suffix": self.job.suffix,
            "created_at": self.job.created_at,
            "complete": self.complete,
            "tables_complete": self.tables,
            "cut_over_at": self.cut_over_at,
            "records": sum(stage.records for stage in self.stages),
        }
        if with_tasks:
            report["stages"] = [
                {
                    "stage": stage.name,
                    "complete": stage.complete,
                    "records": stage.records,
                    "done": stage.done,
                    "total": stage.total,
                    "per_second": stage.per_second,
                    "seconds_left": stage.seconds_left,
                    "tasks": [asdict(task) for task in stage.tasks],
                }
                for stage in self.stages
            ]
        return report


@dataclass(frozen=True, slots=True)
class _Sample:
    """A stage's progress at one moment."""

    seconds: float
    records: int
    done: int


class StatusTracker:
    """Derives statuses from consecutive states of one job, with rates.

    Args:
        graph: of the application.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._samples: dict[str, deque[_Sample]] = {}

    def look(self, state: JobState, now_seconds: float) -> JobStatus:
        """Return the job's status.

        Args:
            state: from the control topic.
            now_seconds: since the epoch.
        """
        found: list[StageStatus] = []
        began_ms = state.job.created_at
        for stage in stages(self._graph, _task_counts(self._graph, state.job), state.job.files):
            tasks = [_task(stage, number, state) for number in range(stage.partitions)]
            found.append(self._stage(stage.name, tasks, began_ms, now_seconds))
            if found[-1].complete:
                self._samples.pop(stage.name, None)
            began_ms = max([began_ms, *(task.written_at or 0 for task in tasks)])
        tables = state.tables_at is not None if self._graph.table_sinks else None
        return JobStatus(state.job, found, tables, state.cut_over_at)

    def _stage(
        self, name: str, tasks: Sequence[TaskStatus], began_ms: int, now_seconds: float
    ) -> StageStatus:
        bare = StageStatus(name, tasks, None, None)
        if bare.complete or not bare.records:
            return bare
        now = _Sample(now_seconds, bare.records, bare.done or 0)
        samples = self._samples.setdefault(name, deque())
        while samples and samples[0].seconds < now_seconds - RATE_SECONDS:
            samples.popleft()
        samples.append(now)
        first = samples[0]
        if len(samples) == 1 or now.records == first.records:
            last_ms = max(task.written_at or 0 for task in tasks)
            if now_seconds - last_ms / 1000 > RATE_SECONDS:
                return bare
            first, now = _Sample(began_ms / 1000, 0, 0), _Sample(last_ms / 1000, *_counts(now))
        return _with_rate(bare, first, now)


def _counts(sample: _Sample) -> tuple[int, int]:
    return sample.records, sample.done


def _with_rate(stage: StageStatus, first: _Sample, now: _Sample) -> StageStatus:
    seconds = now.seconds - first.seconds
    if seconds <= 0:
        return stage
    left = None
    if stage.total is not None and now.done > first.done:
        left = (stage.total - now.done) * seconds / (now.done - first.done)
    return StageStatus(stage.name, stage.tasks, (now.records - first.records) / seconds, left)


def _task(stage: Stage, number: int, state: JobState) -> TaskStatus:
    progress = state.tasks.get((stage.name, number))
    total, done = _offsets(stage, number, state, progress)
    return TaskStatus(
        sub_topology=stage.name,
        partition=number,
        records=0 if progress is None else progress.records,
        done=done,
        total=total,
        complete=progress is not None and progress.complete,
        late=0 if progress is None else progress.late,
        skipped=0 if progress is None else progress.skipped,
        dead_letters=0 if progress is None else progress.dead_letters,
        written_at=None if progress is None else progress.written_at,
    )


def _offsets(
    stage: Stage, number: int, state: JobState, progress: TaskProgress | None
) -> tuple[int | None, int | None]:
    """Return the total and the processed offsets of a task, where known."""
    if any(topic in stage.files or topic not in state.job.ranges for topic in stage.topics):
        return None, None
    positions: Mapping[TopicPartition, int] = {} if progress is None else progress.by_partition()
    total = done = 0
    for topic in stage.topics:
        range_ = state.job.ranges[topic][number]
        position = positions.get(TopicPartition(topic, number), range_.first)
        total += range_.end - range_.first
        done += min(position, range_.end) - range_.first
    return total, total if progress is not None and progress.complete else done


def _task_counts(graph: Graph, job: Job) -> dict[str, int]:
    """Return the number of tasks by sub-topology, as fixed by the job."""
    counts = {topic: len(found) for topic, found in {**job.ranges, **job.own_starts}.items()}
    counts |= {topic: files.partitions for topic, files in job.files.items()}
    return {
        part.name: max(counts.get(source.topic, 0) for source in part.sources)
        for part in graph.sub_topologies
    }


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
