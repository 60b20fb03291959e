"""The commit interval, and the time for which records are gathered before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

ROUNDS = 3
"""While records wait, the commit interval is at least this many times a commit round, so that a
worker with many tasks spends two thirds of the time processing. A worker without a backlog
would gain nothing and delay its outputs."""

RECENT = 3
"""The shortest of this many rounds counts: a round that waited for a broker replacement is no
measure of the next, and would delay everything once more."""

LASTING = 5
"""The number of slow rounds in a row before a warning."""

GATHER_SHARE = 0.125
"""Share of the commit interval for which a few records wait for more."""

GATHER_SECONDS = (0.01, 0.02)
"""Lower and upper bound of this time. For some milliseconds after a commit the coordinator
refuses the next transaction, and a short batch queued after one in flight keeps a librdkafka
thread busy (`rd_kafka_toppar_producer_serve`)."""


class CommitInterval:
    """The commit interval, stretched where commit rounds take long.

    Args:
        interval_seconds: the configured interval.
        longest_seconds: the longest interval; longer ones would let transactions expire.
        clock: seconds, monotonic.
    """

    def __init__(
        self, interval_seconds: float, longest_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._asked_seconds = interval_seconds
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._due = clock() + interval_seconds
        self._recent_seconds = deque([0.0] * RECENT, RECENT)
        self._stretched_rounds = 0
        self._logged_seconds = interval_seconds

    def is_due(self) -> bool:
        """Return whether the next round should begin."""
        return self._clock() >= self._due

    def remaining_seconds(self) -> float:
        """Return the time until the next round; 0 when it is due."""
        return max(0.0, self._due - self._clock())

    def round_took(self, seconds: float, *, backlog: bool) -> float | None:
        """Schedule the next round after one that took `seconds`.

        Args:
            seconds: from the first request to the last answer.
            backlog: whether records wait.

        Returns:
            The stretched interval if it should be logged: it persists, and is twice the last one
                logged.
        """
        self._recent_seconds.append(seconds)
        least_seconds = ROUNDS * min(self._recent_seconds) if backlog else 0.0
        interval_seconds = max(self._asked_seconds, min(least_seconds, self._longest_seconds))
        self._due = self._clock() + interval_seconds
        if interval_seconds == self._asked_seconds:
            self._stretched_rounds = 0
            return None
        self._stretched_rounds += 1
        if self._stretched_rounds >= LASTING and interval_seconds >= 2 * self._logged_seconds:
            self._logged_seconds = interval_seconds
            return interval_seconds
        return None


def gather_seconds(interval_seconds: float) -> float:
    """Return the time for which a few records wait for more, at a commit interval."""
    least_seconds, most_seconds = GATHER_SECONDS
    return max(least_seconds, min(interval_seconds * GATHER_SHARE, most_seconds))
