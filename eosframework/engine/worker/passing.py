"""Passing of sources that are idle: stream time moves without them (ADR 20: W5).

That an upstream task said it is idle moves no time: its process may be gone since, and records may
wait in its sources. So time passes it only up to a time that the others had reached before its logs
were found to be read to their ends:

    1. note the time of the others
    2. compare the committed positions of all partitions upstream of it with the ends of their logs
    3. read the ends of the task's own partitions: the results of all of that are before them
    4. once these are read, and nothing there took back that it is idle: time passes it, up to 1.

What its process does meanwhile does not matter: a killed or suspended one lets time pass if nothing
waits for it, and holds it if something does. A source without watermarks is passed in the same way,
by the end of its log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from eosframework.engine.operators.watermarks import Upstream
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.quiet_tasks import PAUSE_SECONDS
from eosframework.engine.worker.read_logs import unread
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import EosError
from eosframework.records import TopicPartition
from eosframework.transactions.ports import InputLog


@dataclass(frozen=True, slots=True)
class _Pass:
    """Sources that stream time may pass.

    Args:
        sources: upstream tasks, and topics without watermarks.
        until: the time up to which it may pass them.
        ends: the ends of the task's partitions, which it has to read before.
    """

    sources: Collection[Upstream | str]
    until: int
    ends: Mapping[TopicPartition, int]


class Passing:
    """Lets the stream time of a worker's tasks pass idle sources.

    Args:
        plan: of the worker.
        log: its consumer.
        interval_seconds: the least time between two requests.
        clock: seconds, monotonic.
    """

    def __init__(
        self, plan: Plan, log: InputLog, interval_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._plan = plan
        self._log = log
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._not_before = clock()
        self._passes: WeakKeyDictionary[Task, _Pass] = WeakKeyDictionary()

    def look_at(self, task: Task, here: Iterable[Task], membership: object) -> None:
        """Move the stream time of a running task past idle sources, if these are read.

        Args:
            task: a running task of the worker.
            here: all its tasks.
            membership: the membership of the last fetch.

        Raises:
            TransactionError: nothing of the task's transaction may be kept.
        """
        if task.failure is not None or task.is_bisecting:
            return
        if self._clock() >= self._not_before:
            self._not_before = self._clock() + self._interval_seconds
            self._ask([one for one in here if one.state is TaskState.RUNNING])
        found = self._passes.get(task)
        if found is None or not all(_is_read(task, p, found.ends) for p in found.ends):
            return
        del self._passes[task]
        before = task.time.now
        task.time.pass_sources(found.sources, found.until)
        if task.stores is not None and (task.time.now > before or task.time.upstream_is_idle):
            close = task.stores.windows.close_at
            what = "a step after windows that closed without an idle source"
            task.run_by_clock(membership, what, close)

    def _ask(self, tasks: Sequence[Task]) -> None:
        """Note what the tasks may pass; one look for all of them (1 to 3)."""
        held = {
            task: (by, task.time.others)
            for task in tasks
            if task not in self._passes and (by := task.time.held_by)
        }
        if not held:
            return
        try:
            logs = self._logs_of(
                {u for by, _ in held.values() for u in by if not isinstance(u, str)}
            )
            waiting = unread(self._log, sorted({p for found in logs.values() for p in found}))
            ends = self._log.high_watermarks(sorted({p for task in held for p in task.partitions}))
        except EosError:
            self._not_before = self._clock() + PAUSE_SECONDS
            return
        read = {upstream for upstream, found in logs.items() if not waiting.intersection(found)}
        for task, (by, until) in held.items():
            own = {p: ends[p] for p in task.partitions}
            sources = [
                s
                for s in by
                if s in read or (isinstance(s, str) and _is_read(task, _own(task, s), own))
            ]
            if sources:
                self._passes[task] = _Pass(sources, until, own)

    def _logs_of(self, upstream: Collection[Upstream]) -> dict[Upstream, list[TopicPartition]]:
        """Return the partitions upstream of tasks: their sources, and all that feeds these."""
        found: dict[Upstream, list[TopicPartition]] = {}
        for topic in {task.topic for task in upstream}:
            sources = self._plan.sources_of(topic)
            feeding = self._plan.feeding(sources)
            partitions = self._log.partitions(sorted(sources | feeding))
            for task in (task for task in upstream if task.topic == topic):
                found[task] = [
                    p for p in partitions if p.topic not in sources or p.partition == task.task
                ]
        return found


def _own(task: Task, topic: str) -> TopicPartition:
    return TopicPartition(topic, task.identity.partition)


def _is_read(task: Task, partition: TopicPartition, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether all records up to an end were run: fetched ones may wait in front of it."""
    if task.positions[partition] >= ends[partition]:
        return True
    return not task.has_fetched(partition) and task.read_to(partition) >= ends[partition]
