"""Schedule of calls while a database is unavailable: growing pauses, logged once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import structlog

from eosframework.errors import DatabaseFault, EosError

FIRST_PAUSE_SECONDS = 0.05


class Outage:
    """The schedule of calls while a database, or the brokers that a claim needs, is unavailable.

    Args:
        longest_pause_seconds: no pause is longer.
        clock: seconds, monotonic.
        chance: a number from 0 to 1, so that workers do not all reconnect at once.
        logger: of structlog.
    """

    def __init__(
        self,
        *,
        longest_pause_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        logger: Any = None,
    ) -> None:
        self._longest_pause_seconds = longest_pause_seconds
        self._clock = clock
        self._chance = chance
        self._events = logger or structlog.get_logger("eosframework.tables")
        self._began: float | None = None
        self._attempts = 0
        self._due = clock()
        self._system = ""

    @property
    def unavailable(self) -> str | None:
        """The unavailable system as a sentence; None: no outage lasts."""
        return None if self._began is None else f"the {self._system} is unavailable"

    @property
    def lasted_seconds(self) -> float:
        """Seconds since the first failure; 0 if no outage lasts."""
        return 0.0 if self._began is None else self._clock() - self._began

    def is_due(self) -> bool:
        """Return whether the next call may be made."""
        return self._clock() >= self._due

    def remaining_seconds(self) -> float:
        """Return the time until the next call; 0 when it is due."""
        return max(0.0, self._due - self._clock())

    def failed(self, error: EosError) -> float:
        """Note that a call failed, and return the pause before the next.

        The pauses double, each shortened at random by up to a half. Only the first failure is
        logged, as `database_unavailable` or `cluster_unavailable`.
        """
        pause_seconds = FIRST_PAUSE_SECONDS * 2.0 ** min(self._attempts, 30)
        pause_seconds = min(pause_seconds, self._longest_pause_seconds)
        pause_seconds *= 1 - self._chance() / 2
        if self._began is None:
            self._began = self._clock()
            self._system = "database" if isinstance(error, DatabaseFault) else "cluster"
            self._events.warning(f"{self._system}_unavailable", error=str(error))
        self._attempts += 1
        self._due = self._clock() + pause_seconds
        return pause_seconds

    def over(self) -> None:
        """Note that a call succeeded; after a failure, log `database_available`."""
        if self._began is not None:
            self._events.info(
                f"{self._system}_available",
                after_seconds=round(self.lasted_seconds, 1),
                attempts=self._attempts,
            )
        self._began = None
        self._attempts = 0
        self._due = self._clock()
