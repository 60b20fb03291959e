"""When the next round of commits is due, and how long records are gathered before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

ROUNDS = 3
"""While work waits, the commit interval is at least this many times a round, so that a worker
with many tasks processes for two thirds of the time. One that keeps up has nothing to gain from
that, and its outputs would come later."""

RECENT = 3
"""The shortest of so many rounds counts: one that waited for a broker to be replaced is no measure
of the next, and would keep everything waiting once more."""

LASTING = 5
"""So many rounds in a row have to be slow before it is worth a word."""

GATHER_SHARE = 0.125
"""Of the commit interval: few records wait so long for more."""

GATHER_SECONDS = (0.01, 0.02)
"""But at least and at most so long. At once after a commit the coordinator refuses the next
transaction for some milliseconds, and each short batch behind another that is under way keeps a
thread of librdkafka busy (`rd_kafka_toppar_producer_serve`)."""


class CommitPace:
    """The commit interval, stretched where rounds of commits take long.

    Args:
        interval_seconds: what the user asked for.
        longest_seconds: no interval is longer, or transactions would expire.
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
        self._told_seconds = interval_seconds

    @property
    def due(self) -> float:
        """When the next round should begin."""
        return self._due

    def is_due(self) -> bool:
        """Tell whether the next round should begin."""
        return self._clock() >= self._due

    def remaining_seconds(self) -> float:
        """Return how long until the next round; 0 when it is due."""
        return max(0.0, self._due - self._clock())

    def round_took(self, seconds: float, *, behind: bool) -> float | None:
        """Set when the next round is due, after one that took `seconds`.

        Args:
            seconds: from the first request to the last answer.
            behind: whether work waits.

        Returns:
            The stretched interval if it is news: it lasts, and is twice what was last told.
        """
        self._recent_seconds.append(seconds)
        least_seconds = ROUNDS * min(self._recent_seconds) if behind else 0.0
        interval_seconds = max(self._asked_seconds, min(least_seconds, self._longest_seconds))
        self._due = self._clock() + interval_seconds
        if interval_seconds == self._asked_seconds:
            self._stretched_rounds = 0
            return None
        self._stretched_rounds += 1
        if self._stretched_rounds >= LASTING and interval_seconds >= 2 * self._told_seconds:
            self._told_seconds = interval_seconds
            return interval_seconds
        return None


def gather_seconds(interval_seconds: float) -> float:
    """Return how long few records wait for more, at a commit interval."""
    least_seconds, most_seconds = GATHER_SECONDS
    return max(least_seconds, min(interval_seconds * GATHER_SHARE, most_seconds))
