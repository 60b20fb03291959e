"""Tasks without input: their stream time (ADR 20: W2, W4, W5), and windows that the clock closes.

A task that runs records announces its stream time with their transaction. One that does not still
owes it: after a takeover, after a burst that was shorter than the interval, and when it is idle. A
task is idle if its sources have been read to their ends for `worker.max_task_idle_seconds`, the
brokers confirm that no record waits, and stream time has passed all of its upstream tasks. An
outage makes no task idle: the brokers are asked before each announcement.

A source without watermarks next to a repartition topic is idle by the same rule, whatever the
upstream tasks do: rows of a table may be rare, and hold stream time for that long only.

That a task or a source is idle moves no time: its process may be gone since, and records may wait
in its sources. So time passes it (W5) only up to a time that the others had reached before its logs
were found to be read to their ends:

    1. note the time of the others
    2. compare the committed positions of all partitions upstream of it with the ends of their logs
    3. read the ends of the task's own partitions: the results of all of that are before them
    4. once these are read, and nothing there took back that it is idle: time passes it, up to 1.

What its process does meanwhile does not matter: a killed or suspended one lets time pass if nothing
waits for it, and holds it if something does. A source without watermarks is passed in the same way,
by the end of its log.

The clock closes windows of tasks without input where the topology asks for it. No record may be
late because it waited during an outage, so the clock alone closes nothing: a task must have read
the log of every source partition to its end for the given time, and the input of the application's
repartition topics must be processed as well. The brokers are asked repeatedly meanwhile: after an
outage, of the brokers or of this process, the time starts again, so that delayed producers can
still send.

The end of a log is its high watermark. The last stable offset says nothing about records that wait:
those of an open transaction follow it in the log. An offset that is committed to the group up to
the high watermark shows that nothing waits, in whichever process the partition is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from eosframework.engine.operators.watermarks import Upstream
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import EosError
from eosframework.records import TopicPartition
from eosframework.transactions.ports import InputLog

PAUSE_SECONDS = 1.0
"""Pause after a request that brokers did not answer."""


class QuietTasks:
    """Checks the tasks of a worker.

    Args:
        log: asked for the ends of partitions.
        max_idle_seconds: see `WorkerOptions.max_task_idle_seconds`.
        clock: seconds, monotonic.
        may_be_idle: returns whether some partitions of a task may count as idle.
    """

    def __init__(
        self,
        log: InputLog,
        max_idle_seconds: float,
        clock: Callable[[], float],
        may_be_idle: Callable[[Task, Sequence[TopicPartition]], bool],
    ) -> None:
        self._log = log
        self._may_be_idle = may_be_idle
        self._max_idle_seconds = max_idle_seconds
        self._clock = clock
        self._not_before = clock()

    def look_at(self, task: Task, membership: object) -> None:
        """Announce the stream time of a running task, if it is due.

        Args:
            task: a running task of the worker.
            membership: the membership of the last fetch.

        Raises:
            TransactionError: nothing of the task's transaction may be kept.
        """
        time = task.time
        if not time.is_kept or time.rests or task.failure is not None or task.is_bisecting:
            return
        for topic in time.active_own:
            self._look_at_own(task, TopicPartition(topic, task.identity.partition))
        if self._would_rest(task):
            if self._holds_nothing(task, task.partitions):
                _rest(task, membership)
            else:
                task.idle_since = self._clock()
        elif not task.in_transaction and time.owes_watermark:
            task.run_by_clock(membership)

    def _would_rest(self, task: Task) -> bool:
        """Return whether a task is idle if the brokers confirm it."""
        if not task.is_at_end or not self._is_over(task.idle_since):
            return False
        return task.time.upstream_is_idle and self._may_be_idle(task, task.partitions)

    def _look_at_own(self, task: Task, partition: TopicPartition) -> None:
        """Note a source without watermarks that is idle."""
        quiet_since = task.time.quiet_since(partition)
        if task.has_fetched(partition) or not self._is_over(quiet_since):
            return
        if not self._may_be_idle(task, [partition]):
            return
        if self._holds_nothing(task, [partition]):
            task.time.own_is_idle(partition.topic)
        else:
            task.time.had_record(partition)

    def _is_over(self, since: float) -> bool:
        now = self._clock()
        return now >= self._not_before and now - since >= self._max_idle_seconds

    def _holds_nothing(self, task: Task, partitions: Sequence[TopicPartition]) -> bool:
        """Ask the brokers whether no record waits in some partitions of a task."""
        try:
            return holds_nothing(self._log, {p: task.read_to(p) for p in partitions})
        except EosError:
            self._not_before = self._clock() + PAUSE_SECONDS
            return False


def _rest(task: Task, membership: object) -> None:
    """Announce that a task is idle (W4)."""
    if task.time.announcing.downstream:
        task.run_by_clock(membership)
    task.time.rests = True


def unread(log: InputLog, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions with records, or markers, that the group has not committed.

    Positions are read before ends. In the other order a chain would look read too early:

        1. the ends of topics A and B are read  2. the reader of A writes its results to B and
        commits  3. the committed positions equal both ends, and the results wait in B

    Args:
        log: of a member of the group.
        partitions: the partitions, of any member.

    Raises:
        EosError: the brokers did not answer.
    """
    if not partitions:
        return set()
    committed = {p.topic_partition: p.offset for p in log.decided(partitions)}
    new = [partition for partition, offset in committed.items() if offset is None]
    # A partition that was never committed may have a log that retention has emptied.
    read_to = committed | (log.beginning_offsets(new) if new else {})
    ends = log.high_watermarks(partitions)
    return {p for p in partitions if (read_to[p] or 0) < ends[p]}


def holds_nothing(log: InputLog, read_to: dict[TopicPartition, int]) -> bool:
    """Return whether the logs of some partitions end at the offsets up to which they were read.

    Raises:
        EosError: the brokers did not answer.
    """
    ends = log.high_watermarks(list(read_to))
    return all(ends[partition] <= offset for partition, offset in read_to.items())


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


@dataclass(frozen=True, slots=True)
class _Pass:
    """Sources that stream time may pass.

    Args:
        sources: upstream tasks, and topics without watermarks.
        until: the time up to which it may pass them.
        ends: the ends of the task's partitions, which it has to read before.
    """

    sources: Collection[Upstream | str]
    until: int
    ends: Mapping[TopicPartition, int]


class Passing:
    """Lets the stream time of a worker's tasks pass idle sources.

    Args:
        plan: of the worker.
        log: its consumer.
        interval_seconds: the least time between two requests.
        clock: seconds, monotonic.
    """

    def __init__(
        self, plan: Plan, log: InputLog, interval_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._plan = plan
        self._log = log
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._not_before = clock()
        self._passes: WeakKeyDictionary[Task, _Pass] = WeakKeyDictionary()

    def look_at(self, task: Task, here: Iterable[Task], membership: object) -> None:
        """Move the stream time of a running task past idle sources, if these are read.

        Args:
            task: a running task of the worker.
            here: all its tasks.
            membership: the membership of the last fetch.

        Raises:
            TransactionError: nothing of the task's transaction may be kept.
        """
        if task.failure is not None or task.is_bisecting:
            return
        if self._clock() >= self._not_before:
            self._not_before = self._clock() + self._interval_seconds
            self._ask([one for one in here if one.state is TaskState.RUNNING])
        found = self._passes.get(task)
        if found is None or not all(_is_read(task, p, found.ends) for p in found.ends):
            return
        del self._passes[task]
        before = task.time.now
        task.time.pass_sources(found.sources, found.until)
        if task.stores is not None and (task.time.now > before or task.time.upstream_is_idle):
            close = task.stores.windows.close_at
            what = "a step after windows that closed without an idle source"
            task.run_by_clock(membership, what, close)

    def _ask(self, tasks: Sequence[Task]) -> None:
        """Note what the tasks may pass; one look for all of them (1 to 3)."""
        held = {
            task: (by, task.time.others)
            for task in tasks
            if task not in self._passes and (by := task.time.held_by)
        }
        if not held:
            return
        try:
            logs = self._logs_of(
                {u for by, _ in held.values() for u in by if not isinstance(u, str)}
            )
            waiting = unread(self._log, sorted({p for found in logs.values() for p in found}))
            ends = self._log.high_watermarks(sorted({p for task in held for p in task.partitions}))
        except EosError:
            self._not_before = self._clock() + PAUSE_SECONDS
            return
        read = {upstream for upstream, found in logs.items() if not waiting.intersection(found)}
        for task, (by, until) in held.items():
            own = {p: ends[p] for p in task.partitions}
            sources = [
                s
                for s in by
                if s in read or (isinstance(s, str) and _is_read(task, _own(task, s), own))
            ]
            if sources:
                self._passes[task] = _Pass(sources, until, own)

    def _logs_of(self, upstream: Collection[Upstream]) -> dict[Upstream, list[TopicPartition]]:
        """Return the partitions upstream of tasks: their sources, and all that feeds these."""
        found: dict[Upstream, list[TopicPartition]] = {}
        for topic in {task.topic for task in upstream}:
            sources = self._plan.sources_of(topic)
            feeding = self._plan.feeding(sources)
            partitions = self._log.partitions(sorted(sources | feeding))
            for task in (task for task in upstream if task.topic == topic):
                found[task] = [
                    p for p in partitions if p.topic not in sources or p.partition == task.task
                ]
        return found


def _own(task: Task, topic: str) -> TopicPartition:
    return TopicPartition(topic, task.identity.partition)


def _is_read(task: Task, partition: TopicPartition, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether all records up to an end were run: fetched ones may wait in front of it."""
    if task.positions[partition] >= ends[partition]:
        return True
    return not task.has_fetched(partition) and task.read_to(partition) >= ends[partition]
