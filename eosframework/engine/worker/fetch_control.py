"""Flow control of the consumer: the partitions that are fetched.

Partitions of running tasks are fetched, except:

- those with `BUFFER_RECORDS` records waiting for other partitions (`Task.full_partitions`)
- those with more bytes waiting than their share, once half of the worker's queue is in use

A partition with nothing waiting is never paused, because others may wait for it. So the most that
waits is twice that half, plus the result of one fetch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import structlog

from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.records import TopicPartition
from eosframework.transactions.ports import InputLog


class FetchControl:
    """Resumes and pauses partitions when their state changes.

    Args:
        log: the worker's consumer.
        queue_bytes: the most bytes of fetched records that may wait in the worker.
    """

    def __init__(self, log: InputLog, queue_bytes: int) -> None:
        self._log = log
        self._half_bytes = queue_bytes / 2
        self._fetched: set[TopicPartition] = set()
        self._held: set[TopicPartition] = set()
        self._was_logged = False
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, tasks: Collection[Task]) -> None:
        """Resume the wanted partitions, and pause all others.

        Args:
            tasks: all tasks of the worker.
        """
        running = [task for task in tasks if task.state is TaskState.RUNNING]
        waiting = [task for task in running if task.waiting_sizes]
        wanted = {p for task in running for p in task.positions}
        self._hold_back(waiting, len(wanted))
        wanted.difference_update(p for task in waiting for p in task.full_partitions)
        wanted.difference_update(self._held)
        if started := sorted(wanted - self._fetched):
            self._log.resume(started)
        if left := self._fetched - wanted:
            assigned = {p for task in tasks for p in task.positions}
            if stopped := sorted(left & assigned):
                self._log.pause(stopped)
        self._fetched = wanted

    def note_paused(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that partitions were paused or newly assigned elsewhere."""
        self._fetched.difference_update(partitions)

    def _hold_back(self, waiting: Sequence[Task], partitions: int) -> None:
        """Choose the partitions that are paused for their size.

        Pausing discards prefetched records, so a paused partition stays paused until half of its
        share is processed.
        """
        sizes = {p: size for task in waiting for p, size in task.waiting_sizes.items()}
        much_waits = sum(sizes.values()) >= self._half_bytes
        if not much_waits and not self._held:
            return
        share_bytes = self._half_bytes / max(partitions, 1)
        held = {p for p in self._held if sizes.get(p, 0) > share_bytes / 2}
        if much_waits:
            held.update(p for p, size in sizes.items() if size >= share_bytes)
            self._log_once(held, sizes)
        self._held = held

    def _log_once(
        self, held: Collection[TopicPartition], sizes: Mapping[TopicPartition, int]
    ) -> None:
        """Log once that a small queue may slow this worker down."""
        if held and not self._was_logged:
            self._was_logged = True
            self._events.info(
                "partitions_held_back",
                partitions=sorted(map(str, held)),
                waiting_bytes=sum(sizes.values()),
                setting="worker.queue_megabytes",
            )
