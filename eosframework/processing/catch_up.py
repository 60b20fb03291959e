"""Whether everything is read that was there when the worker started, by whoever has it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from eosframework.errors import Retriable, StartRefused
from eosframework.processing.plan import Plan
from eosframework.processing.ports import InputLog, ProgressLedger
from eosframework.processing.stores.state_ports import Bounds
from eosframework.processing.task import Task
from eosframework.processing.task_states import TaskState
from eosframework.records import TopicPartition

LOOK_SECONDS = 1.0
"""Between two questions about the partitions of others."""


class CatchingUp:
    """Knows the ends that the source topics had at the start.

    What the application sends to itself gets its end when what it comes from is read; where one
    such topic feeds another one, that takes as many looks as there are topics.

    A worker without partitions is not done: in a rebalance it may have given them up a moment ago,
    and get others next. So what others have counts as well, by the committed offsets.

    Args:
        log: the worker's.
        plan: what it runs.
        ledger: tells where partitions begin that nobody has committed.
        hold_nothing: tells whether there is no record in ranges of partitions; None: every offset
            counts as one.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        log: InputLog,
        plan: Plan,
        ledger: ProgressLedger,
        hold_nothing: Callable[[Bounds], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._hold_nothing = hold_nothing
        self._clock = clock
        self._look_at = clock()
        self._own_topics = sorted(plan.own_topics)
        self._levels = len(self._own_topics)
        self._ends = log.end_offsets(log.partitions(plan.topics))

    def is_done(self, tasks: Iterable[Task]) -> bool:
        """Tell whether it is all read, and all that came of it."""
        tasks = list(tasks)
        while _is_read(tasks, self._ends) and self._others_have_read(tasks):
            if self._levels == 0:
                return True
            self._levels -= 1
            self._ends |= self._log.end_offsets(self._log.partitions(self._own_topics))
        return False

    def _others_have_read(self, tasks: Sequence[Task]) -> bool:
        own = {partition for task in tasks for partition in task.partitions}
        others = sorted(self._ends.keys() - own)
        if not others:
            return True
        if self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + LOOK_SECONDS
        try:
            read_to = self._committed(others)
        except (Retriable, StartRefused):
            # What one had not committed when it was asked, it may have when the ledger is. Offsets
            # that are lost are refused by whoever gets the partition.
            return False
        left = {p: (read_to[p], self._ends[p]) for p in others if read_to[p] < self._ends[p]}
        return not left or (self._hold_nothing is not None and self._hold_nothing(left))

    def _committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where each partition is, or where it begins."""
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
