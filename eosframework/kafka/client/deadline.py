"""Deadlines of waits."""

from __future__ import annotations

import time
from typing import Self


class Deadline:
    """A moment on the monotonic clock, or none.

    Args:
        seconds: from now; None: there is no deadline.
    """

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    @classmethod
    def from_timeout(cls, timeout: float) -> Self:
        """Return the deadline of a confluent_kafka `timeout`; below 0: none."""
        return cls(None if timeout < 0 else timeout)

    def timeout(self, at_most: float | None = None) -> float:
        """Return the seconds left, as confluent_kafka takes them: -1 without a deadline."""
        if self._at is None:
            return -1.0 if at_most is None else at_most
        left = max(0.0, self._at - time.monotonic())
        return left if at_most is None else min(left, at_most)

    @property
    def is_over(self) -> bool:
        """True once the moment has passed."""
        return self._at is not None and time.monotonic() >= self._at
