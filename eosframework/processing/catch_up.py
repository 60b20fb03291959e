"""Detection that all input that existed at the start is processed, by this worker or others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from eosframework.errors import Retriable, StartRefused
from eosframework.processing.ports import InputLog, ProgressLedger
from eosframework.processing.stores.state_ports import Bounds
from eosframework.processing.task import Task
from eosframework.processing.task_states import TaskState
from eosframework.processing.worker_plan import Plan
from eosframework.records import TopicPartition

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

    A worker without partitions is not done: a rebalance may have taken them a moment ago and assign
    others next. So the partitions of other workers count as well, by their committed offsets.

    Args:
        log: the worker's consumer.
        plan: the worker's plan.
        ledger: returns the start of partitions without a commit.
        hold_nothing: returns whether ranges of partitions contain no record; None: every offset
            counts as a record.
        clock: seconds, monotonic.
        max_idle_seconds: see `WorkerOptions.max_task_idle_seconds`.
    """

    def __init__(
        self,
        log: InputLog,
        plan: Plan,
        ledger: ProgressLedger,
        hold_nothing: Callable[[Bounds], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        max_idle_seconds: float = 0.0,
    ) -> None:
        self._log = log
        self._topics = plan.topics
        self._ledger = ledger
        self._hold_nothing = hold_nothing
        self._clock = clock
        self._max_idle_seconds = max_idle_seconds
        self._read_since: float | None = None
        self._look_at = clock()
        self._own_topics = sorted(plan.own_topics)
        self._levels = len(self._own_topics)
        self._ends: dict[TopicPartition, int] | None = None
        with suppress(Retriable):
            self._read_ends()

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
                return self._has_passed_time(tasks)
            ends |= self._log.end_offsets(self._log.partitions(self._own_topics))
            self._levels -= 1
        return False

    def _has_passed_time(self, tasks: Sequence[Task]) -> bool:
        """Return whether tasks without input count as idle, or were waited for long enough.

        Until then stream time after a repartition topic is held, and with it results that wait
        for it. New input may keep a task from being idle.
        """
        if all(task.time.rests or not task.time.is_kept for task in tasks):
            return True
        now = self._clock()
        if self._read_since is None:
            self._read_since = now
        wait_seconds = IDLE_TIMES * self._max_idle_seconds + IDLE_LEAST_SECONDS
        return now - self._read_since >= wait_seconds

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
        left = {p: (read_to[p], ends[p]) for p in others if read_to[p] < ends[p]}
        return not left or (self._hold_nothing is not None and self._hold_nothing(left))

    def _committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed position, or else the start, of each partition."""
        committed = self._log.committed(partitions)
        starts = self._ledger.starting_positions(committed, self._log)
        return {start.topic_partition: start.offset or 0 for start in starts}


def _is_read(tasks: Iterable[Task], ends: Mapping[TopicPartition, int]) -> bool:
    return all(
        task.state is TaskState.RUNNING
        and not task.in_transaction
        and not task.has_waiting
        and all(task.read_to(p) >= ends.get(p, 0) for p in task.partitions)
        for task in tasks
    )
