"""What there is to see of a worker at one moment, for whoever asks from another thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from eosframework.processing.measurements import Measured
from eosframework.processing.plan import WorkerCounts
from eosframework.processing.task import Task
from eosframework.records import Position, TopicPartition


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task.

    Args:
        read_to: by source partition, up to which offset it is read.
    """

    name: str
    state: str
    read_to: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker.

    Args:
        was_assigned: the group has told it at least once which partitions it has.
        away: what the worker waits for outside Kafka, such as its database; None: nothing.
    """

    counts: WorkerCounts
    tasks: tuple[TaskView, ...]
    was_assigned: bool
    measured: Measured
    away: str | None = None


def task_view(task: Task) -> TaskView:
    """Return what there is to see of a task."""
    identity = task.identity
    # The end of a partition is seen before what lies ahead of it was run.
    read_to = task.positions if task.has_waiting else {p: task.read_to(p) for p in task.positions}
    return TaskView(
        f"{identity.sub_topology}[{identity.partition}]", task.state.value, dict(read_to)
    )


def committed_positions(tasks: Iterable[Task], topics: Set[str]) -> list[Position]:
    """Return how far tasks have committed partitions of some topics."""
    return [
        Position(*partition, task.committed_offset(partition))
        for task in tasks
        for partition in task.partitions
        if partition.topic in topics
    ]


def with_tasks(counts: WorkerCounts, tasks: Iterable[Task]) -> WorkerCounts:
    """Return what was counted, together with what `tasks` have counted themselves."""
    whole = replace(counts)
    for task in tasks:
        add_task(whole, task)
    return whole


def add_task(counts: WorkerCounts, task: Task) -> None:
    """Add what a task has counted itself."""
    counts.records += task.processed
    counts.late += task.late_records
    counts.skipped += task.failures.skipped
    counts.dead_letters += task.failures.dead_letters
    counts.retries += task.failures.retries
