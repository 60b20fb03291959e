"""Stream time of a task: what moves it, and whether downstream tasks know it (ADR 20).

It is announced by watermarks in the transactions of a task:

    W1. a producer group that commits adds, after its outputs, one watermark record for each
        partition of each timed topic that its tasks write: all of its tasks' watermarks in it
    W2. at most every `interval_seconds`, only if one of them moved, and in the first transaction
        after a takeover
    W3. a watermark is stream time minus the hold of the topic (`graph/timed_topics`)
    W4. a task at the end of its sources announces that it is idle; its next transaction takes that
        back before its outputs

A watermark is in the transaction of the outputs before it, so a crash leaves both or neither. A
repeated one changes nothing: only the greatest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from eosframework.engine.operators.watermarks import (
    WATERMARK_KEY,
    Announcement,
    Upstream,
    UpstreamTimes,
    encode_watermark,
)
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Output

HELD_SECONDS = 300.0
"""Seconds after which a task whose upstream tasks sent no watermark makes its process unready.
Readiness at once would stop a rolling upgrade, whose older workers write no watermarks."""


class TaskTime:
    """Stream time of one task.

    Args:
        upstream: stream time, if watermarks of upstream tasks move it; None: records do.
        announcing: of stream time to downstream tasks.
        clock: seconds, monotonic.

    Attributes:
        now: stream time, in milliseconds since the epoch.
        rests: the task is idle, and no downstream task waits for it.
        hurries: the open transaction has more than watermarks.
    """

    def __init__(
        self, upstream: UpstreamTimes | None, announcing: Announcing, clock: Callable[[], float]
    ) -> None:
        self.now = 0
        self.rests = self.hurries = False
        self.upstream = upstream
        self.announcing = announcing
        self._clock = clock
        self._made_at = self._began_at = clock()
        self._had_record: dict[TopicPartition, float] = {}

    def had_record(self, partition: TopicPartition) -> float:
        """Note that a partition has records now; return the clock time."""
        self._had_record[partition] = now = self._clock()
        return now

    def quiet_since(self, partition: TopicPartition) -> float:
        """Return the clock time since which no record of a partition was run."""
        return self._had_record.get(partition, self._began_at)

    @property
    def is_kept(self) -> bool:
        """True if watermarks move stream time, or announce it to downstream tasks."""
        return self.upstream is not None or bool(self.announcing.downstream)

    @property
    def watermarks_taken(self) -> int:
        """The number of watermarks that were read."""
        return 0 if self.upstream is None else self.upstream.taken

    @property
    def passed_over(self) -> int:
        """Records below stream time, because their upstream task counted as idle."""
        return 0 if self.upstream is None else self.upstream.passed_over

    @property
    def upstream_is_idle(self) -> bool:
        """True if stream time has passed all upstream tasks, or there is none."""
        if self.upstream is None:
            return True
        self.upstream.begin()
        return self.upstream.all_are_passed

    @property
    def held_by(self) -> Sequence[Upstream | str]:
        """The idle sources that stream time has not passed yet."""
        if self.upstream is None:
            return ()
        self.upstream.begin()
        return self.upstream.held_by

    @property
    def others(self) -> int:
        """The time that stream time reaches without the idle sources."""
        return 0 if self.upstream is None else self.upstream.others

    @property
    def missing(self) -> Sequence[Upstream]:
        """Upstream tasks without a watermark, which hold stream time; of a running task."""
        if self.upstream is None:
            return ()
        self.upstream.begin()
        return self.upstream.missing

    @property
    def is_held(self) -> bool:
        """True if upstream tasks have been missing for longer than `HELD_SECONDS`."""
        return self._clock() - self._made_at > HELD_SECONDS and bool(self.missing)

    @property
    def is_untold(self) -> bool:
        """True if downstream tasks do not know stream time."""
        return self.announcing.is_untold(self.now)

    @property
    def owes_watermark(self) -> bool:
        """True if a watermark is due."""
        return self.announcing.is_due(self.now, self._clock())

    @property
    def active_own(self) -> Sequence[str]:
        """The sources without watermarks that hold stream time unless they are idle."""
        if self.upstream is None:
            return ()
        self.upstream.begin()
        return self.upstream.active_own

    def own_is_idle(self, topic: str) -> None:
        """Note that a source without watermarks is idle."""
        if self.upstream is not None:
            self.upstream.own_is_idle(topic)

    def pass_sources(self, sources: Collection[Upstream | str], until: int) -> None:
        """Let stream time pass idle sources; see `UpstreamTimes`."""
        if self.upstream is not None:
            self.now = self.upstream.pass_sources(sources, until)

    def take_due(self) -> bool:
        """Return whether stream time is due to be announced, and take it as announced (W2)."""
        now, is_idle = self._clock(), self.rests
        if not self.announcing.is_due(self.now, now, is_idle=is_idle):
            return False
        self.announcing.announced(self.now, now, is_idle=is_idle)
        return True

    def wake(self) -> list[Output]:
        """Return the watermarks that take back that the task is idle, before its outputs (W4)."""
        if not self.rests:
            return []
        self.rests = False
        if not self.announcing.is_idle:
            return []
        self.announcing.announced(self.now, self._clock())
        return [*watermarks([self.announcing])]

    def committed(self) -> None:
        """Take the open transaction as committed."""
        self.hurries = False
        self.announcing.committed()

    def drop(self) -> None:
        """Discard the open transaction."""
        self.rests = self.hurries = False
        self._had_record.clear()
        self._began_at = self._clock()
        self.announcing.drop()


NOW = 0
"""The timestamp of watermarks; librdkafka takes the current time for it. Brokers may refuse stream
time, which can be that of a record without outputs."""


@dataclass(frozen=True, slots=True)
class Downstream:
    """A timed topic that a sub-topology writes.

    Args:
        partitions: its number of partitions.
        hold_ms: how far results may be older than stream time.
    """

    topic: str
    partitions: int
    hold_ms: int


class Announcing:
    """The announced stream time of one task.

    Args:
        task: its partition number.
        downstream: the timed topics that it writes; none: it announces nothing.
        interval_seconds: the least time between two watermarks.
    """

    def __init__(
        self, task: int, downstream: Sequence[Downstream] = (), interval_seconds: float = 0.0
    ) -> None:
        self.task = task
        self.downstream = downstream
        self._interval_seconds = interval_seconds
        self._committed: tuple[int, bool] | None = None
        self._open: tuple[int, bool] | None = None
        self._not_before = 0.0

    @property
    def is_idle(self) -> bool:
        """True if the task is announced as idle."""
        return self._committed is not None and self._committed[1]

    def is_due(self, stream_time: int, now: float, *, is_idle: bool = False) -> bool:
        """Return whether the next transaction announces stream time (W2).

        Args:
            stream_time: of the task, in milliseconds.
            now: clock time.
            is_idle: the task is at the end of its sources.
        """
        if not self.is_untold(stream_time, is_idle=is_idle):
            return False
        known = self._open or self._committed
        return known is None or known[1] != is_idle or now >= self._not_before

    def is_untold(self, stream_time: int, *, is_idle: bool = False) -> bool:
        """Return whether downstream tasks know another stream time, or none."""
        return bool(self.downstream) and (self._open or self._committed) != (stream_time, is_idle)

    def announced(self, stream_time: int, now: float, *, is_idle: bool = False) -> None:
        """Note a watermark in the open transaction."""
        self._open = stream_time, is_idle
        self._not_before = now + self._interval_seconds

    def announcement(self, hold_ms: int) -> Announcement:
        """Return the watermark of the open transaction for a topic (W3)."""
        assert self._open is not None, "announced before"
        stream_time, is_idle = self._open
        return Announcement(self.task, stream_time - hold_ms, is_idle)

    def committed(self) -> None:
        """Take the watermark of the open transaction as committed."""
        if self._open is not None:
            self._committed, self._open = self._open, None

    def drop(self) -> None:
        """Discard the watermark of the open transaction."""
        if self._open is not None:
            self._open, self._not_before = None, 0.0


def watermarks(announcing: Iterable[Announcing]) -> Iterator[Output]:
    """Yield the watermark records of tasks of one sub-topology or several (W1).

    Args:
        announcing: of tasks that have announced stream time in the open transaction.
    """
    by_topic: dict[Downstream, list[Announcing]] = {}
    for one in announcing:
        for topic in one.downstream:
            by_topic.setdefault(topic, []).append(one)
    for topic, tasks in by_topic.items():
        value = encode_watermark(task.announcement(topic.hold_ms) for task in tasks)
        for number in range(topic.partitions):
            yield topic.topic, value, WATERMARK_KEY, number, None, None, NOW, None
