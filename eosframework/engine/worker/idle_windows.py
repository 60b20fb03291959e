"""Closing of windows by the clock for tasks without input, where the topology asks for it.

No record may be late because it waited during an outage, so the clock alone closes nothing. A task
must have read the log of every source partition to its end for the given time, and the input of the
application's repartition topics must be processed as well. The brokers are asked repeatedly
meanwhile: after an outage, of the brokers or of this process, the time starts again, so that
delayed producers can still send.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from eosframework.engine.task.task import Task
from eosframework.engine.worker.read_logs import holds_nothing, unread
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import EosError
from eosframework.transactions.ports import InputLog

LOOK_SECONDS = 1.0
"""Minimum interval between two checks of an idle task."""

LOOKS = 10
"""Number of checks within the idle time, if that is long enough."""

MISSED = 3
"""A pause of this many intervals between two checks restarts the idle time."""


@dataclass(slots=True)
class _Look:
    """The state of an idle task.

    Args:
        since: clock time of its last record.
        not_before: clock time of the next check.
        quiet_since: clock time since which every check found no waiting record; None: the last
            check found one.
        looked_at: clock time of the last check that found none.
        handled_seconds: windows with this idle time or less have been closed.
    """

    since: float
    not_before: float
    quiet_since: float | None = None
    looked_at: float = 0.0
    handled_seconds: float = 0.0

    def __post_init__(self) -> None:
        """The last record shows that the brokers were available then."""
        self.quiet_since = self.looked_at = self.since


class IdleWindows:
    """Checks the tasks of a worker.

    Attributes:
        closings: the number of times that windows of a task were closed.
    """

    def __init__(self, plan: Plan, log: InputLog, clock: Callable[[], float]) -> None:
        self.closings = 0
        self._plan = plan
        self._log = log
        self._clock = clock
        self._looks: WeakKeyDictionary[Task, _Look] = WeakKeyDictionary()

    def look_at(self, task: Task, membership: object) -> None:
        """Close the windows of a task that has been idle for long enough.

        Args:
            task: a running task of the worker.
            membership: the membership of the last fetch; a worker that lost a partition since then
                cannot commit.

        Raises:
            TransactionError: nothing of the task's transaction may be kept.
        """
        if task.stores is None:
            return
        times = task.stores.windows.idle_times
        if not times or not task.is_at_end:
            return
        look = self._looks.get(task)
        if look is None or look.since != task.idle_since:
            look = self._looks[task] = _Look(task.idle_since, task.idle_since + LOOK_SECONDS)
        if task.closes_windows_again:
            look.handled_seconds = 0.0
        open_ = [seconds for seconds in times if seconds > look.handled_seconds]
        now = self._clock()
        if not open_ or now < look.not_before or not task.stores.windows.may_close:
            return
        pause_seconds = max(LOOK_SECONDS, min(open_) / LOOKS)
        look.not_before = now + pause_seconds
        if not self._is_all_read(task):
            look.quiet_since = None
            return
        if look.quiet_since is None or now - look.looked_at > MISSED * pause_seconds:
            look.quiet_since = now
        look.looked_at = self._clock()
        quiet_seconds = now - look.quiet_since
        if quiet_seconds >= min(open_):
            look.handled_seconds = quiet_seconds
            if nodes := task.stores.windows.open_for(quiet_seconds):
                self.closings += 1
                close = partial(task.stores.windows.close_by_clock, nodes)
                task.run_by_clock(membership, "a step after windows that the clock closed", close)

    def _is_all_read(self, task: Task) -> bool:
        """Ask the brokers whether no record waits for the task, in its topics or upstream of them.

        Upstream topics are checked first: their results are in the task's topics by then.
        """
        try:
            feeding = self._plan.feeding({p.topic for p in task.positions})
            if feeding and unread(self._log, self._log.partitions(sorted(feeding))):
                return False
            return holds_nothing(self._log, {p: task.read_to(p) for p in task.partitions})
        except EosError:
            return False
