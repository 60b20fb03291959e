"""The status of a job: progress of its tasks, rates and estimated time left.

Positions give the share of a task's range where all its input is read from Kafka by offsets. Rows
of files and of internal topics are numbered as they come, so only their number so far is known.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import structlog
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from eosframework.process.progress import TerminalConsole
from eosframework.records import TopicPartition
from eosframework.spark.job.job_entry import Job, JobState, TaskProgress
from eosframework.spark.job.stages import Stage, stages
from eosframework.topology.graph.graph import Graph

_RATE_SECONDS = 60.0
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
        while samples and samples[0].seconds < now_seconds - _RATE_SECONDS:
            samples.popleft()
        samples.append(now)
        first = samples[0]
        if len(samples) == 1 or now.records == first.records:
            last_ms = max(task.written_at or 0 for task in tasks)
            if now_seconds - last_ms / 1000 > _RATE_SECONDS:
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


_EVENT_SECONDS = 10.0
_BAR_WIDTH = 30
_TASKS_SHOWN = 16
"""Tasks listed by stage, incomplete ones first; the rest is counted."""


class ProgressDisplay:
    """Displays one job while it runs.

    Args:
        graph: of the application.
        console: target; None: standard error.
    """

    def __init__(self, graph: Graph, console: Console | None = None) -> None:
        self._tracker = StatusTracker(graph)
        self._console = console or TerminalConsole(stderr=True)
        is_terminal = self._console.is_terminal
        self._live = Live(console=self._console, auto_refresh=False) if is_terminal else None
        self._events = structlog.get_logger("eosframework.backfill").bind(
            application=graph.application
        )
        self._event_due = time.monotonic() + _EVENT_SECONDS

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, state: JobState) -> JobStatus:
        """Show a state; may be called at any rate."""
        status = self._tracker.look(state, time.time())
        if self._live is not None:
            self._live.update(drawn(status), refresh=True)
        elif time.monotonic() >= self._event_due:
            self._event_due = time.monotonic() + _EVENT_SECONDS
            self._log(status)
        return status

    def _log(self, status: JobStatus) -> None:
        running = next((s for s in status.stages if not s.complete), None)
        if running is not None:
            self._events.info(
                "backfill_progress",
                job=status.job.name,
                stage=running.name,
                records=running.records,
                per_second=_rounded(running.per_second),
                seconds_left=_rounded(running.seconds_left),
                tasks_complete=sum(task.complete for task in running.tasks),
                tasks=len(running.tasks),
            )


def drawn(status: JobStatus) -> Group:
    """Return a job's status for people."""
    rows = Table.grid(padding=(0, 2))
    for stage in status.stages:
        rows.add_row(*_stage_row(stage))
        if not stage.complete:
            _add_tasks(rows, stage)
    if status.tables is not None:
        rows.add_row(Text("tables"), Text("complete" if status.tables else "not complete"), Text())
    return Group(Text(headline(status)), rows)


def headline(status: JobStatus) -> str:
    """Return a job's status in one line."""
    job = status.job
    started = datetime.fromtimestamp(job.created_at / 1000, UTC)
    if status.cut_over_at is not None:
        moment = datetime.fromtimestamp(status.cut_over_at / 1000, UTC)
        stands = f"cut over at {moment:%Y-%m-%d %H:%M:%S} UTC"
    else:
        stands = "complete" if status.complete else "not complete"
    beside = "" if job.suffix is None else f" into topics and tables with suffix {job.suffix}"
    return (
        f"job {job.name} of {job.application}{beside}, started at "
        f"{started:%Y-%m-%d %H:%M:%S} UTC: {stands}"
    )


def _stage_row(stage: StageStatus) -> tuple[Text, ProgressBar | Text, Text]:
    done, total = stage.done, stage.total
    if stage.complete:
        bar = ProgressBar(total=1, completed=1, width=_BAR_WIDTH)
    elif done is None or total is None:
        finished = sum(task.complete for task in stage.tasks)
        bar = Text(f"{finished} of {len(stage.tasks)} tasks complete")
    else:
        bar = ProgressBar(total=max(total, 1), completed=done, width=_BAR_WIDTH)
    parts = [f"{stage.records:,} records"]
    if not stage.complete and done is not None and total:
        parts.append(f"{100 * done / total:.1f}%")
    if stage.per_second is not None:
        parts.append(f"{stage.per_second:,.0f}/s")
    if stage.seconds_left is not None:
        parts.append(f"{timedelta(seconds=round(stage.seconds_left))} left")
    for count, what in _troubles(stage):
        parts.append(f"{count:,} {what}")
    return Text(stage.name), bar, Text("  ".join(parts))


def _troubles(stage: StageStatus) -> list[tuple[int, str]]:
    counted = [
        (sum(task.late for task in stage.tasks), "late"),
        (sum(task.skipped for task in stage.tasks), "skipped"),
        (sum(task.dead_letters for task in stage.tasks), "dead letters"),
    ]
    return [(count, what) for count, what in counted if count]


def _add_tasks(rows: Table, stage: StageStatus) -> None:
    ordered = sorted(stage.tasks, key=lambda task: (task.complete, task.partition))
    for task in ordered[:_TASKS_SHOWN]:
        if task.complete:
            how_far = "complete"
        elif task.done is None or not task.total:
            how_far = "" if task.records else "has not begun"
        else:
            how_far = f"{100 * task.done / task.total:.1f}%"
        name = f"  {task.sub_topology}[{task.partition}]"
        rows.add_row(Text(name), Text(how_far), Text(f"{task.records:,} records"))
    if len(ordered) > _TASKS_SHOWN:
        rows.add_row(Text(f"  and {len(ordered) - _TASKS_SHOWN} more tasks"), Text(), Text())


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
