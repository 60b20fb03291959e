"""A warning about inputs that an open transaction of a producer holds back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.records import TopicPartition
from eosframework.transactions.ports import InputLog

LOOK_SECONDS = 5.0

FIND_OPEN = "`eosframework txn hanging` shows whose transaction is open, and how to end it"


class HeldInput:
    """Warns once of each last stable offset that does not move although records follow it.

    Args:
        log: the worker's consumer.
        limit_seconds: time in which a healthy transaction ends.
        clock: seconds, monotonic.
    """

    def __init__(self, log: InputLog, limit_seconds: float, clock: Callable[[], float]) -> None:
        self._log = log
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._look_at = 0.0
        self._since: dict[tuple[TopicPartition, int], float] = {}
        self._warned: set[tuple[TopicPartition, int]] = set()
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, tasks: Iterable[Task]) -> None:
        """Compare the ends of what was read with the ends of the logs, at intervals."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        read = [
            (partition, task.read_to(partition))
            for task in tasks
            if task.state is TaskState.RUNNING and task.is_at_end
            for partition in task.partitions
        ]
        held = [(p, offset) for p, offset in read if self._log.lag({p: offset}) > 0]
        self._since = {entry: self._since.get(entry, now) for entry in held}
        self._warned.intersection_update(held)
        late = {e for e, since in self._since.items() if now - since > self._limit_seconds}
        if new := late - self._warned:
            self._warned |= new
            self._events.warning(
                "input_held_back",
                offsets={str(partition): offset for partition, offset in sorted(new)},
                seconds=round(max(now - self._since[entry] for entry in new)),
                advice=FIND_OPEN,
            )
