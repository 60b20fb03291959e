"""Whether everything is read that was there when the worker started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eosframework.processing.plan import Plan
from eosframework.processing.ports import InputLog
from eosframework.processing.task import Task, TaskState
from eosframework.records import TopicPartition


class CatchingUp:
    """Knows the ends that the source topics had at the start.

    What the application sends to itself gets its end when what it comes from is read; where one
    such topic feeds another one, that takes as many looks as there are topics.
    """

    def __init__(self, log: InputLog, plan: Plan) -> None:
        self._log = log
        self._own_topics = sorted(plan.own_topics)
        self._levels = len(self._own_topics)
        self._ends = log.end_offsets(log.partitions(plan.topics))

    def is_done(self, tasks: Iterable[Task]) -> bool:
        """Tell whether it is all read, and all that came of it."""
        tasks = list(tasks)
        while _is_read(tasks, self._ends):
            if self._levels == 0:
                return True
            self._levels -= 1
            self._ends |= self._log.end_offsets(self._log.partitions(self._own_topics))
        return False


def _is_read(tasks: Iterable[Task], ends: Mapping[TopicPartition, int]) -> bool:
    return all(
        task.state is TaskState.RUNNING
        and not task.in_transaction
        and not task.has_pending
        and all(task.read_to(p) >= ends.get(p, 0) for p in task.partitions)
        for task in tasks
    )
