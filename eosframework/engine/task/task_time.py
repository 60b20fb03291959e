"""Stream time of a task: what moves it, and whether downstream tasks know it (ADR 20)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from eosframework.engine.operators.watermarks import Upstream, UpstreamTimes
from eosframework.engine.task.announcing import Announcing, watermarks
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

    def announces(self) -> bool:
        """Return whether the open transaction announces stream time, and note it (W2)."""
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
