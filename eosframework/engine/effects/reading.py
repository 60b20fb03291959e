"""The reading of the journals of newly assigned tasks (J2).

It ends at the high watermark that was read after the takeover (J1), as the restoration of stores
does: an entry after the last stable offset may be a committed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from eosframework.engine.effects.entries import read_entry
from eosframework.engine.effects.task_effects import TaskEffects
from eosframework.engine.stores.state_ports import Bounds, ChangelogReading, Changelogs
from eosframework.errors import ClusterUnreachable, PositionLost, Retriable, RunError
from eosframework.records import TopicPartition
from eosframework.transactions.ports import InputLog

SLICE_SECONDS = 0.1
"""Time that one turn reads, so that other tasks and the group are not delayed."""

RETRY_SECONDS = 1.0

HELD_LOOK_SECONDS = 0.2
"""Interval of checks whether an open transaction has ended."""

HELD_SECONDS = 45.0
"""Time to wait for an open transaction."""


@dataclass(slots=True, eq=False)
class _Wait:
    """A task whose journal is not read yet.

    Args:
        end: the high watermark after the takeover.
        until: clock time at which it fails; None: no open transaction was seen.
    """

    task: TaskEffects
    end: int
    until: float | None = None


@dataclass(slots=True, eq=False)
class _Job:
    reading: ChangelogReading
    tasks: dict[TopicPartition, _Wait]


class JournalReading:
    """Reads the journals of tasks, a slice in each turn.

    Args:
        topics: reads the topics of journals.
        log: has the committed offset from which each is read.
        clock: seconds, monotonic.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        topics: Changelogs,
        log: InputLog,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._log = log
        self._clock = clock
        self._now = now
        self._waits: dict[TaskEffects, _Wait] = {}
        self._jobs: list[_Job] = []
        self._not_before = 0.0
        self._events = structlog.get_logger("eosframework.effects")

    def turn(self, tasks: Sequence[TaskEffects]) -> None:
        """Begin to read the journals of tasks, and read on.

        Args:
            tasks: all whose journal is not read.

        Raises:
            RunError: a transaction stays open, or an entry cannot be read.
        """
        self._waits = {task: wait for task, wait in self._waits.items() if not task.is_closed}
        reading = {wait.task for job in self._jobs for wait in job.tasks.values()}
        new = [task for task in tasks if task not in reading and not task.is_read]
        if new and self._clock() >= self._not_before:
            try:
                self._begin(new)
            except (ClusterUnreachable, Retriable) as error:
                self._events.warning("effects_reading_retried", error=str(error))
                self._not_before = self._clock() + RETRY_SECONDS
        for job in [*self._jobs]:
            self._read(job)

    def close(self) -> None:
        """Stop reading."""
        for job in self._jobs:
            job.reading.close()
        self._jobs.clear()

    def _begin(self, tasks: Sequence[TaskEffects]) -> None:
        new = [task for task in tasks if task not in self._waits]
        if new:
            ends = self._topics.written_ends([task.partition for task in new])
            self._waits |= {task: _Wait(task, ends[task.partition]) for task in new}
        bounds = self._topics.bounds([task.partition for task in tasks])
        ready = [self._waits[t] for t in tasks if not self._is_held(self._waits[t], bounds)]
        if len(ready) < len(tasks):
            self._not_before = self._clock() + HELD_LOOK_SECONDS
        if not ready:
            return
        stable = self._log.committed([wait.task.partition for wait in ready])
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        begun: dict[TopicPartition, _Wait] = {}
        for wait, position in zip(ready, stable, strict=True):
            del self._waits[wait.task]
            partition, first = wait.task.partition, bounds[wait.task.partition][0]
            start = max(first, position.offset or 0)
            wait.task.end = start
            if start >= wait.end:
                wait.task.is_read = True
                continue
            ranges[partition], begun[partition] = (start, wait.end), wait
        if ranges:
            self._jobs.append(_Job(self._topics.open(ranges), begun))

    def _is_held(self, wait: _Wait, bounds: Bounds) -> bool:
        partition = wait.task.partition
        stable = bounds[partition][1]
        if stable >= wait.end:
            return False
        if wait.until is None:
            wait.until = self._clock() + HELD_SECONDS
        if self._clock() >= wait.until:
            raise RunError(
                f"the journal of effects {partition} cannot be read: a transaction of another "
                f"producer hangs at offset {stable}, and hides entries up to {wait.end}; waited "
                f"{HELD_SECONDS:g} s. `eosframework txn hanging --topic {partition.topic}` shows "
                f"whose it is and the command that ends it; then start the worker again. Nothing "
                f"was called"
            )
        return True

    def _read(self, job: _Job) -> None:
        now_ms = self._now() * 1000
        try:
            batches = job.reading.read(SLICE_SECONDS)
        except PositionLost as error:  # Purged since: it is read from what is there.
            self._events.warning("effects_reading_retried", error=str(error))
            self._end(job)
            return
        for partition, messages in batches.items():
            task = job.tasks[partition].task
            for message in messages:
                task.note(*read_entry(message), message.offset())
        for partition, wait in [*job.tasks.items()]:
            if wait.task.is_closed:
                del job.tasks[partition]
            elif job.reading.read_to(partition) >= wait.end:
                wait.task.end = max(wait.task.end, wait.end)
                wait.task.first_needed(now_ms)
                wait.task.is_read = True
                del job.tasks[partition]
                self._events.info(
                    "effects_read",
                    task=wait.task.identity.name,
                    entries=len(wait.task),
                    offset=wait.end,
                )
        if not job.tasks:
            self._end(job)

    def _end(self, job: _Job) -> None:
        job.reading.close()
        self._jobs.remove(job)
