"""Closes the windows of tasks that nothing comes for, where the topology asks for it.

Nothing may be dropped as late because it waited during an outage. So the clock alone closes
nothing. A task has to be at the last stable offset of every source partition for the given time,
and what feeds the topics that the application sends to itself must be read as well. The brokers are
asked so again and again meanwhile: after an outage, of theirs or of this process, the time begins
anew, and whoever could not send has the time to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from eosframework.errors import EosError
from eosframework.processing.plan import Plan
from eosframework.processing.ports import InputLog
from eosframework.processing.stores.local_state import LocalState
from eosframework.processing.task import Task
from eosframework.records import TopicPartition

LOOK_SECONDS = 1.0
"""Shortest pause between two looks at an idle task."""

LOOKS = 10
"""So many looks fall into the time that has to pass, if that is long enough."""

MISSED = 3
"""After a pause so many times as long as it should be, nobody knows what was in between."""


@dataclass(slots=True)
class _Look:
    """What is known of an idle task.

    Args:
        since: clock time of its last record.
        not_before: clock time of the next look.
        quiet_since: since when every look has found that nothing waits; None: the last one has not.
        looked_at: clock time of the last look that did.
        handled_seconds: what closes after so long or less has been closed.
    """

    since: float
    not_before: float
    quiet_since: float | None = None
    looked_at: float = 0.0
    handled_seconds: float = 0.0

    def __post_init__(self) -> None:
        """A record that came shows that the brokers were there."""
        self.quiet_since = self.looked_at = self.since


class IdleWindows:
    """Looks at the tasks of a worker."""

    def __init__(
        self, plan: Plan, log: InputLog, state: LocalState | None, clock: Callable[[], float]
    ) -> None:
        self._plan = plan
        self._log = log
        self._state = state
        self._clock = clock
        self._looks: WeakKeyDictionary[Task, _Look] = WeakKeyDictionary()

    def look_at(self, task: Task, here: Iterable[Task], membership: object) -> None:
        """Close the windows of a task that has been idle for long enough.

        Args:
            task: of the worker, running.
            here: all its tasks.
            membership: of the last look at the consumer: whoever lost a partition since then
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
        if not self._is_all_read(task, here):
            look.quiet_since = None
            return
        if look.quiet_since is None or now - look.looked_at > MISSED * pause_seconds:
            look.quiet_since = now
        look.looked_at = self._clock()
        quiet_seconds = now - look.quiet_since
        if quiet_seconds >= min(open_):
            look.handled_seconds = quiet_seconds
            if nodes := task.stores.windows.open_for(quiet_seconds):
                task.close_windows(nodes, membership)

    def _is_all_read(self, task: Task, here: Iterable[Task]) -> bool:
        """Ask the brokers whether nothing waits for the task, in its topics or on the way there.

        What feeds its topics is looked at first: what that gave is in them by then.
        """
        try:
            feeding = self._plan.feeding({p.topic for p in task.positions})
            partitions = self._log.partitions(sorted(feeding)) if feeding else []
            if partitions and not self._are_read(partitions, here):
                return False
            ends = self._log.end_offsets(task.partitions)
        except EosError:
            return False
        return all(end <= task.read_to(partition) for partition, end in ends.items())

    def _are_read(self, partitions: Sequence[TopicPartition], here: Iterable[Task]) -> bool:
        """Tell whether the group has committed all records of some partitions.

        Behind the last record may be markers of transactions, which nobody can commit: of tasks
        of this worker it is known, for others what lies there is read.
        """
        ends = self._log.end_offsets(partitions)
        through = [task for task in here if task.is_at_end and not task.in_transaction]
        read_to = {p: task.read_to(p) for task in through for p in task.positions}
        unread: dict[TopicPartition, tuple[int, int]] = {}
        for position in self._log.committed(partitions):
            partition, committed = position.topic_partition, position.offset
            if committed is None and ends[partition] > 0:
                return False
            at = max(committed or 0, 0)
            if at < ends[partition] > read_to.get(partition, 0):
                unread[partition] = at, ends[partition]
        return not unread or (self._state is not None and self._state.hold_nothing(unread))
