"""Detection that all input that existed at the start is processed, by this worker or others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import Retriable, StartRefused
from eosframework.records import TopicPartition
from eosframework.transactions.ports import InputLog, ProgressLedger

IDLE_TIMES = 3
"""The most times `worker.max_task_idle_seconds` that tasks are waited for until they are idle."""

IDLE_LEAST_SECONDS = 5.0
"""The time added to that: tasks that read what idle ones wrote follow one after the other."""

LOOK_SECONDS = 1.0
"""Interval between two reads of other workers' committed offsets."""


class CatchUp:
    """Compares progress with the ends that the source topics had at the start.

    Repartition topics get their end once their input is processed. Where such topics feed each
    other, this takes one pass for each of them.

    The end of a run says nothing about a source: what it has not read yet comes in the next run. So
    only a source that had no record since the last run may count as idle, and stream time stays at
    the least time of the others. A run that finds no input thus ends with all results.

    A worker without partitions is not done: a rebalance may have taken them a moment ago and assign
    others next. So the partitions of other workers count as well, by their committed offsets.

    Args:
        log: the worker's consumer.
        plan: the worker's plan.
        ledger: returns the start of partitions without a commit.
        clock: seconds, monotonic.
        max_idle_seconds: see `WorkerOptions.max_task_idle_seconds`.
    """

    def __init__(
        self,
        log: InputLog,
        plan: Plan,
        ledger: ProgressLedger,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_idle_seconds: float = 0.0,
    ) -> None:
        self._log = log
        self._topics = plan.topics
        self._ledger = ledger
        self._clock = clock
        self._max_idle_seconds = max_idle_seconds
        self._read_since: float | None = None
        self._look_at = clock()
        self._own_topics = sorted(plan.own_topics)
        self._levels = len(self._own_topics)
        self._ends: dict[TopicPartition, int] | None = None
        self._first_ends: dict[TopicPartition, int] = {}
        self._silent: set[TopicPartition] = set()
        with suppress(Retriable):
            self._first_ends = dict(self._read_ends())
            if self._own_topics:
                self._silent = self._without_input()

    def may_be_idle(self, task: Task, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether sources of a task may count as idle in this run.

        Internal topics may: whether their upstream tasks are idle follows from their own sources.
        """
        return all(
            p.topic in self._own_topics
            or (p in self._silent and task.read_to(p) <= self._first_ends[p])
            for p in partitions
        )

    def _without_input(self) -> set[TopicPartition]:
        """Return the partitions that were read to their ends before this run."""
        try:
            read_to = self._committed(sorted(self._first_ends))
        except (Retriable, StartRefused):
            return set()
        return {p for p, end in self._first_ends.items() if read_to[p] >= end}

    def is_done(self, tasks: Iterable[Task]) -> bool:
        """Return whether all input and its results in internal topics are processed."""
        with suppress(Retriable):  # No broker answered; the next call asks again.
            return self._is_done(list(tasks), self._ends or self._read_ends())
        return False

    def _read_ends(self) -> dict[TopicPartition, int]:
        """Read the ends of the source topics, again if no broker answered at the start.

        Raises:
            Retriable: no broker answered.
        """
        self._ends = self._log.end_offsets(self._log.partitions(self._topics))
        return self._ends

    def _is_done(self, tasks: Sequence[Task], ends: dict[TopicPartition, int]) -> bool:
        while _is_read(tasks, ends) and self._others_have_read(tasks, ends):
            if self._levels == 0:
                return self._has_passed_time(tasks, ends)
            ends |= self._log.end_offsets(self._log.partitions(self._own_topics))
            self._levels -= 1
        return False

    def _has_passed_time(self, tasks: Sequence[Task], ends: dict[TopicPartition, int]) -> bool:
        """Return whether stream time has come as far as it may, or was waited for long enough.

        Until then results that wait for it may follow. New input may keep a task from being idle.
        """
        if all(map(self._is_settled, tasks)):
            ends |= self._log.end_offsets(self._log.partitions(self._own_topics))
            return _is_read(tasks, ends)
        now = self._clock()
        if self._read_since is None:
            self._read_since = now
        wait_seconds = IDLE_TIMES * self._max_idle_seconds + IDLE_LEAST_SECONDS
        return now - self._read_since >= wait_seconds

    def _is_settled(self, task: Task) -> bool:
        """Return whether stream time of a task has come as far as it can in this run."""
        time, number = task.time, task.identity.partition
        if time.rests or not time.is_kept:
            return True
        rests_soon = time.upstream_is_idle and self.may_be_idle(task, task.partitions)
        own = (TopicPartition(topic, number) for topic in time.active_own)
        passes_soon = bool(time.held_by) or any(self.may_be_idle(task, [p]) for p in own)
        return not rests_soon and not passes_soon and not time.is_untold

    def _others_have_read(self, tasks: Sequence[Task], ends: Mapping[TopicPartition, int]) -> bool:
        own = {partition for task in tasks for partition in task.partitions}
        others = sorted(ends.keys() - own)
        if not others:
            return True
        if self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + LOOK_SECONDS
        try:
            read_to = self._committed(others)
        except (Retriable, StartRefused):
            # Another worker may commit between the two reads, so its start may look lost. If it
            # really is, the worker that gets the partition refuses to start.
            return False
        return all(read_to[p] >= ends[p] for p in others)

    def _committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed position, or else the start, of each partition."""
        committed = self._log.committed(partitions)
        starts = self._ledger.starting_positions(committed, self._log)
        return {start.topic_partition: start.offset or 0 for start in starts}


def _is_read(tasks: Iterable[Task], ends: Mapping[TopicPartition, int]) -> bool:
    return all(
        task.state is TaskState.RUNNING
        and not task.in_transaction
        and not task.has_rest
        and not task.owes_clock
        and not task.has_waiting
        and not task.lags_behind_markers
        and all(task.read_to(p) >= ends.get(p, 0) for p in task.partitions)
        for task in tasks
    )
