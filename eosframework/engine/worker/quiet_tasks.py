"""Announcing of stream time by tasks without input (ADR 20: W2, W4).

A task that runs records announces its stream time with their transaction. One that does not still
owes it: after a takeover, after a burst that was shorter than the interval, and when it is idle. A
task is idle if its sources have been read to their ends for `worker.max_task_idle_seconds`, the
brokers confirm that no record waits, and stream time has passed all of its upstream tasks. An
outage makes no task idle: the brokers are asked before each announcement.

A source without watermarks next to a repartition topic is idle by the same rule, whatever the
upstream tasks do: rows of a table may be rare, and hold stream time for that long only.

That a task or a source is idle moves no time: see `passing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eosframework.engine.task.task import Task
from eosframework.engine.worker.read_logs import holds_nothing
from eosframework.errors import EosError
from eosframework.records import TopicPartition
from eosframework.transactions.ports import InputLog

PAUSE_SECONDS = 1.0
"""Pause after a request that brokers did not answer."""


class QuietTasks:
    """Checks the tasks of a worker.

    Args:
        log: asked for the ends of partitions.
        max_idle_seconds: see `WorkerOptions.max_task_idle_seconds`.
        clock: seconds, monotonic.
        may_be_idle: returns whether some partitions of a task may count as idle.
    """

    def __init__(
        self,
        log: InputLog,
        max_idle_seconds: float,
        clock: Callable[[], float],
        may_be_idle: Callable[[Task, Sequence[TopicPartition]], bool],
    ) -> None:
        self._log = log
        self._may_be_idle = may_be_idle
        self._max_idle_seconds = max_idle_seconds
        self._clock = clock
        self._not_before = clock()

    def look_at(self, task: Task, membership: object) -> None:
        """Announce the stream time of a running task, if it is due.

        Args:
            task: a running task of the worker.
            membership: the membership of the last fetch.

        Raises:
            TransactionError: nothing of the task's transaction may be kept.
        """
        time = task.time
        if not time.is_kept or time.rests or task.failure is not None or task.is_bisecting:
            return
        for topic in time.active_own:
            self._look_at_own(task, TopicPartition(topic, task.identity.partition))
        if self._would_rest(task):
            if self._holds_nothing(task, task.partitions):
                _rest(task, membership)
            else:
                task.idle_since = self._clock()
        elif not task.in_transaction and time.owes_watermark:
            task.run_by_clock(membership)

    def _would_rest(self, task: Task) -> bool:
        """Return whether a task is idle if the brokers confirm it."""
        if not task.is_at_end or not self._is_over(task.idle_since):
            return False
        return task.time.upstream_is_idle and self._may_be_idle(task, task.partitions)

    def _look_at_own(self, task: Task, partition: TopicPartition) -> None:
        """Note a source without watermarks that is idle."""
        quiet_since = task.time.quiet_since(partition)
        if task.has_fetched(partition) or not self._is_over(quiet_since):
            return
        if not self._may_be_idle(task, [partition]):
            return
        if self._holds_nothing(task, [partition]):
            task.time.own_is_idle(partition.topic)
        else:
            task.time.had_record(partition)

    def _is_over(self, since: float) -> bool:
        now = self._clock()
        return now >= self._not_before and now - since >= self._max_idle_seconds

    def _holds_nothing(self, task: Task, partitions: Sequence[TopicPartition]) -> bool:
        """Ask the brokers whether no record waits in some partitions of a task."""
        try:
            return holds_nothing(self._log, {p: task.read_to(p) for p in partitions})
        except EosError:
            self._not_before = self._clock() + PAUSE_SECONDS
            return False


def _rest(task: Task, membership: object) -> None:
    """Announce that a task is idle (W4)."""
    if task.time.announcing.downstream:
        task.run_by_clock(membership)
    task.time.rests = True
