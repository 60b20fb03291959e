"""When the next round of commits is due."""

from __future__ import annotations

from collections.abc import Callable

ROUNDS = 3
"""The commit interval is at least this many times the last round, so that a worker with many
tasks processes for two thirds of the time."""


class CommitPace:
    """The commit interval, stretched where a round of commits takes long.

    Args:
        interval_seconds: what the user asked for.
        clock: seconds, monotonic.
    """

    def __init__(self, interval_seconds: float, clock: Callable[[], float]) -> None:
        self._asked_seconds = self._seconds = interval_seconds
        self._clock = clock
        self._due = clock() + interval_seconds
        self._told_seconds = interval_seconds

    def is_due(self) -> bool:
        """Tell whether the next round should begin."""
        return self._clock() >= self._due

    def remaining_seconds(self) -> float:
        """Return how long until the next round; 0 when it is due."""
        return max(0.0, self._due - self._clock())

    def round_took(self, seconds: float) -> float | None:
        """Set when the next round is due after one that took `seconds`.

        Returns:
            The stretched interval if it is news: twice what was last told.
        """
        self._seconds = max(self._asked_seconds, ROUNDS * seconds)
        self._due = self._clock() + self._seconds
        if self._seconds >= 2 * self._told_seconds:
            self._told_seconds = self._seconds
            return self._seconds
        return None
