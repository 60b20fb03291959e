"""Which partitions are fetched: those of running tasks, unless enough of one waits.

A partition is held back

- of which `BUFFER_RECORDS` wait for records of others (`Task.full_partitions`),
- of which more bytes wait than its share, once half of what the worker has for all is taken.

One of which nothing waits is never held back: others may wait for it. So at most twice the half
waits, and what one fetch brings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import structlog

from eosframework.processing.ports import InputLog
from eosframework.processing.task import Task
from eosframework.processing.task_states import TaskState
from eosframework.records import TopicPartition


class Flowing:
    """Resumes and pauses partitions, each only when that changes.

    Args:
        log: the worker's.
        queue_bytes: how many bytes of fetched records may wait in the worker.
    """

    def __init__(self, log: InputLog, queue_bytes: int) -> None:
        self._log = log
        self._half_bytes = queue_bytes / 2
        self._flowing: set[TopicPartition] = set()
        self._held: set[TopicPartition] = set()
        self._was_told = False
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, tasks: Collection[Task]) -> None:
        """Let flow what is wanted now, and nothing else.

        Args:
            tasks: all of the worker's.
        """
        assigned = {p for task in tasks for p in task.positions}
        running = [task for task in tasks if task.state is TaskState.RUNNING]
        wanted = {p for task in running for p in task.positions}
        self._hold_back(running, len(wanted))
        wanted.difference_update(p for task in running for p in task.full_partitions)
        wanted.difference_update(self._held)
        if started := sorted(wanted - self._flowing):
            self._log.resume(started)
        if stopped := sorted((self._flowing - wanted) & assigned):
            self._log.pause(stopped)
        self._flowing = wanted

    def were_paused(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that somebody else has paused partitions, or assigned them anew."""
        self._flowing.difference_update(partitions)

    def _hold_back(self, running: Sequence[Task], partitions: int) -> None:
        """Choose what is held back for its size.

        To pause a partition discards what was fetched ahead, so one that is held back stays so
        until half of its share is gone.
        """
        much_waits = sum(task.waiting_bytes for task in running) >= self._half_bytes
        if not much_waits and not self._held:
            return
        share_bytes = self._half_bytes / max(partitions, 1)
        sizes = {p: size for task in running for p, size in task.waiting_sizes.items()}
        held = {p for p in self._held if sizes.get(p, 0) > share_bytes / 2}
        if much_waits:
            held.update(p for p, size in sizes.items() if size >= share_bytes)
            self._tell(held, sizes)
        self._held = held

    def _tell(self, held: Collection[TopicPartition], sizes: Mapping[TopicPartition, int]) -> None:
        """Say once what may slow a worker down that has little memory."""
        if held and not self._was_told:
            self._was_told = True
            self._events.info(
                "partitions_held_back",
                partitions=sorted(map(str, held)),
                waiting_bytes=sum(sizes.values()),
                setting="worker.queue_megabytes",
            )
