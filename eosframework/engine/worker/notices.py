"""Warnings at a bounded rate of records that time left out, or that pauses of the input decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import structlog

from eosframework.engine.failures.failure_handler import LatePlace
from eosframework.engine.worker.worker_plan import WorkerCounts

NOTICE_SECONDS = 60.0
"""Minimum interval between two warnings of one kind."""


class LateNotice:
    """Warns of new late records, by step and topic, at a bounded rate."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._warned: Counter[LatePlace] = Counter()
        self._not_before = 0.0
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, late: Counter[LatePlace]) -> None:
        """Warn if a number has grown since the last warnings and those are old enough."""
        if self._clock() >= self._not_before and late != self._warned:
            self.warn(late)
            self._not_before = self._clock() + NOTICE_SECONDS

    def warn(self, late: Counter[LatePlace]) -> None:
        """Warn of each number that has grown since the last warnings."""
        self._warn_of(late - self._warned, late)

    def sum_up(self, late: Counter[LatePlace]) -> None:
        """Warn of each number, also if it has not grown since the last warnings."""
        self._warn_of(late, late)

    def _warn_of(self, places: Iterable[LatePlace], late: Counter[LatePlace]) -> None:
        for place in sorted(places):
            new, count = late[place] - self._warned[place], late[place]
            self._events.warning(
                "late_records", step=place.step, topic=place.topic, new=new, all=count
            )
        self._warned = Counter(late)  # The caller continues to count in its own.


class PauseNotice:
    """Warns at a bounded rate that results depend on pauses of the input, by the wall clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._warned = (0, 0)
        self._not_before = 0.0
        self._events = structlog.get_logger("eosframework.worker")

    def turn(self, counts: WorkerCounts) -> None:
        """Warn if a count has grown since the last warning and that is old enough."""
        if self._clock() >= self._not_before and self._numbers(counts) != self._warned:
            self.warn(counts)
            self._not_before = self._clock() + NOTICE_SECONDS

    def warn(self, counts: WorkerCounts) -> None:
        """Warn if a count has grown since the last warning."""
        found = self._numbers(counts)
        if found != self._warned:
            self._warned = found
            self._events.warning(
                "results_depend_on_pauses", passed_over=found[0], closed_by_clock=found[1]
            )

    @staticmethod
    def _numbers(counts: WorkerCounts) -> tuple[int, int]:
        return counts.passed_over, counts.closed_by_clock
