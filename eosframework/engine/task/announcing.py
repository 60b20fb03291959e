"""Announcing of stream time to downstream tasks: watermarks in the transactions of a task.

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eosframework.engine.operators.watermarks import WATERMARK_KEY, Announcement, encode_watermark
from eosframework.transactions.ports import Output

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
