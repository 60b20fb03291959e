"""Calls of functions by the wall clock, in the tasks of a worker (ADR 37).

The due times of each running task are looked at in each turn, whether records come or not. The
brokers are not asked: unlike a window that the clock closes, a call makes no record late.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from eosframework.engine.task.task import Task


class WallClock:
    """Looks at the tasks of a worker.

    Args:
        now: returns the seconds since the epoch.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._called_at: WeakKeyDictionary[Task, int] = WeakKeyDictionary()

    def look_at(self, task: Task, membership: object) -> None:
        """Call the functions of a running task that are due.

        Args:
            task: a running task of the worker.
            membership: the membership of the last fetch; a worker that lost a partition since then
                cannot commit.

        Raises:
            TransactionError: nothing of the task's transaction may be kept.
        """
        if task.stores is None or not task.stores.windows.is_clocked or task.failure is not None:
            return
        time = int(self._now() * 1000)
        if task.closes_windows_again:
            # A trial of rejected results must give the same ones, at a later time.
            time = self._called_at.get(task, time)
        elif task.is_bisecting:
            return
        windows = task.stores.windows
        if windows.look_at_clock(time):
            self._called_at[task] = time
            what = "a function that the wall clock calls"
            task.run_by_clock(membership, what, windows.close_at)
