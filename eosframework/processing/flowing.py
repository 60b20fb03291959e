"""Which partitions are fetched: those of running tasks, unless enough of one waits for others."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from eosframework.processing.ports import InputLog
from eosframework.processing.states import TaskState
from eosframework.processing.task import Task
from eosframework.records import TopicPartition


class Flowing:
    """Resumes and pauses partitions, each only when that changes.

    Args:
        log: the worker's.
    """

    def __init__(self, log: InputLog) -> None:
        self._log = log
        self._flowing: set[TopicPartition] = set()

    def turn(self, tasks: Collection[Task]) -> None:
        """Let flow what is wanted now, and nothing else.

        Args:
            tasks: all of the worker's.
        """
        assigned = {p for task in tasks for p in task.positions}
        running = [task for task in tasks if task.state is TaskState.RUNNING]
        wanted = {p for task in running for p in task.positions}
        wanted.difference_update(p for task in running for p in task.full_partitions)
        if started := sorted(wanted - self._flowing):
            self._log.resume(started)
        if stopped := sorted((self._flowing - wanted) & assigned):
            self._log.pause(stopped)
        self._flowing = wanted

    def were_paused(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that somebody else has paused partitions, or assigned them anew."""
        self._flowing.difference_update(partitions)
