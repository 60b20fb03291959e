"""Snapshots of a worker for readers on other threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

import structlog

from eosframework.engine.calls.call_figures import NO_CALLS, CallSnapshot
from eosframework.engine.calls.call_runner import CallRunner
from eosframework.engine.codegen.compiler import CompiledPart
from eosframework.engine.failures.failure_handler import LatePlace
from eosframework.engine.task.measurements import MeasuresSnapshot
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Aggregate, Step, Store, StreamJoin
from eosframework.topology.graph.walk import nodes_of


@dataclass(frozen=True, slots=True)
class TaskView:
    """A snapshot of a task.

    Args:
        read_to: by source partition, the offset up to which it is read.
        stream_time: in milliseconds since the epoch; None: not known, or not of interest.
        missing: upstream tasks that have sent no watermark, as `topic: task`; they hold its stream
            time.
        is_held: they have been missing for longer than a rolling upgrade should take.
    """

    name: str
    state: str
    read_to: Mapping[TopicPartition, int]
    stream_time: int | None = None
    missing: tuple[str, ...] = ()
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A snapshot of a worker.

    Args:
        was_assigned: the group has assigned partitions to it at least once.
        unavailable: the system outside Kafka that the worker waits for, such as its database; None:
            nothing.
        late: late records of committed transactions, by step and topic.
        keyless: records that steps skipped because they have no key, likewise.
        calls: of steps that call a coroutine, by step.
        matched: number of topics that each pattern of a source matches.
    """

    counts: WorkerCounts
    tasks: tuple[TaskView, ...]
    was_assigned: bool
    measured: MeasuresSnapshot
    unavailable: str | None = None
    late: Mapping[LatePlace, int] = field(default_factory=dict[LatePlace, int])
    keyless: Mapping[LatePlace, int] = field(default_factory=dict[LatePlace, int])
    calls: Mapping[str, CallSnapshot] = field(default_factory=dict[str, CallSnapshot])
    matched: Mapping[str, int] = field(default_factory=dict[str, int])


def task_view(task: Task) -> TaskView:
    """Return a snapshot of a task."""
    identity = task.identity
    # The end of a partition is noted before the records ahead of it have run.
    read_to = task.positions if task.has_waiting else {p: task.read_to(p) for p in task.positions}
    missing = task.time.missing if task.state is TaskState.RUNNING else ()
    return TaskView(
        f"{identity.sub_topology}[{identity.partition}]",
        task.state.value,
        dict(read_to),
        task.time.now,
        tuple(f"{upstream.topic}: task {upstream.task}" for upstream in missing),
        bool(missing) and task.time.is_held,
    )


def committed_positions(tasks: Iterable[Task], topics: Set[str]) -> list[Position]:
    """Return the committed positions of some topics' partitions."""
    return [
        Position(*partition, task.committed_offset(partition))
        for task in tasks
        for partition in task.partitions
        if partition.topic in topics
    ]


def late_places(parts: Iterable[CompiledPart]) -> dict[LatePlace, int]:
    """Return 0 for each step that may have late records, by source topic.

    A counter that appears with its first record has no increase for Prometheus.
    """
    return {
        LatePlace(node.name, topic): 0
        for part in parts
        for node in part.keyed
        if isinstance(node, StreamJoin) or (isinstance(node, Aggregate) and _is_timed(node.store))
        for topic in part.sources
    }


def _is_timed(store: Store) -> bool:
    return store.window is not None and store.window.is_timed


def call_figures(
    parts: Iterable[CompiledPart], runner: CallRunner | None
) -> dict[str, CallSnapshot]:
    """Return the figures of each step that calls a coroutine, also before its first call."""
    nodes = (node for part in parts for node in nodes_of(part.part))
    steps = (node.name for node in nodes if isinstance(node, Step) and node.calls is not None)
    return dict.fromkeys(steps, NO_CALLS) | ({} if runner is None else {**runner.figures()})


def late_records(released: Counter[LatePlace], tasks: Iterable[Task]) -> Counter[LatePlace]:
    """Return the late records of released tasks with those of `tasks` added."""
    found = released
    for task in tasks:  # In every turn, and nearly always there are none.
        if committed := task.late_records.committed:
            found = found + committed
    return found


def keyless_records(released: Counter[LatePlace], tasks: Iterable[Task]) -> Counter[LatePlace]:
    """Return the records without a key of released tasks with those of `tasks` added."""
    found = released
    for task in tasks:
        if committed := task.keyless_records.committed:
            found = found + committed
    return found


def with_tasks(counts: WorkerCounts, tasks: Iterable[Task]) -> WorkerCounts:
    """Return the worker's counters with those of `tasks` added."""
    whole = replace(counts)
    for task in tasks:
        add_task(whole, task)
        whole.held += 0 if task.stores is None else task.stores.held
    return whole


def add_task(counts: WorkerCounts, task: Task) -> None:
    """Add the counters of a task."""
    counts.records += task.processed
    counts.late += task.late_records.committed.total()
    counts.passed_over += task.time.passed_over
    counts.skipped += task.failures.skipped + task.keyless_records.committed.total()
    counts.dead_letters += task.failures.dead_letters
    counts.retries += task.failures.retries


NOTICE_SECONDS = 60.0
"""Minimum interval between two warnings of one kind."""


class LateNotice:
    """Warns of new late records, by step and topic, at a bounded rate."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._warned: Counter[LatePlace] = Counter()
        self._not_before = 0.0
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, late: Counter[LatePlace]) -> None:
        """Warn if a number has grown since the last warnings and those are old enough."""
        if self._clock() >= self._not_before and late != self._warned:
            self.warn(late)
            self._not_before = self._clock() + NOTICE_SECONDS

    def warn(self, late: Counter[LatePlace]) -> None:
        """Warn of each number that has grown since the last warnings."""
        self._warn_of(late - self._warned, late)

    def sum_up(self, late: Counter[LatePlace]) -> None:
        """Warn of each number, also if it has not grown since the last warnings."""
        self._warn_of(late, late)

    def _warn_of(self, places: Iterable[LatePlace], late: Counter[LatePlace]) -> None:
        for place in sorted(places):
            new, count = late[place] - self._warned[place], late[place]
            self._events.warning(
                "late_records", step=place.step, topic=place.topic, new=new, all=count
            )
        self._warned = Counter(late)  # The caller continues to count in its own.


class PauseNotice:
    """Warns at a bounded rate that results depend on pauses of the input, by the wall clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._warned = (0, 0)
        self._not_before = 0.0
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, counts: WorkerCounts) -> None:
        """Warn if a count has grown since the last warning and that is old enough."""
        if self._clock() >= self._not_before and self._numbers(counts) != self._warned:
            self.warn(counts)
            self._not_before = self._clock() + NOTICE_SECONDS

    def warn(self, counts: WorkerCounts) -> None:
        """Warn if a count has grown since the last warning."""
        found = self._numbers(counts)
        if found != self._warned:
            self._warned = found
            self._events.warning(
                "results_depend_on_pauses", passed_over=found[0], closed_by_clock=found[1]
            )

    @staticmethod
    def _numbers(counts: WorkerCounts) -> tuple[int, int]:
        return counts.passed_over, counts.closed_by_clock
