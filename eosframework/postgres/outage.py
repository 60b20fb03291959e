"""Retry schedule for an unavailable database: growing pauses, logged once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import structlog

from eosframework.errors import DatabaseFault

FIRST_PAUSE_SECONDS = 0.05

_log = structlog.stdlib.get_logger(__name__)


class Outage:
    """The schedule of attempts while a database is unavailable.

    Args:
        database: as it is shown in the log.
        longest_pause_seconds: no pause is longer.
        clock: seconds, monotonic.
        chance: a number from 0 to 1, so that workers do not all reconnect at once.
    """

    def __init__(
        self,
        database: str,
        *,
        longest_pause_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._longest_pause_seconds = longest_pause_seconds
        self._clock = clock
        self._chance = chance
        self._began: float | None = None
        self._attempts = 0
        self._due = clock()

    @property
    def is_on(self) -> bool:
        """True if the last attempt failed."""
        return self._began is not None

    def is_due(self) -> bool:
        """Return whether the next attempt may be made."""
        return self._clock() >= self._due

    def remaining_seconds(self) -> float:
        """Return the time until the next attempt; 0 when it is due."""
        return max(0.0, self._due - self._clock())

    def failed(self, error: DatabaseFault) -> float:
        """Note that an attempt failed, and return the pause before the next.

        The pauses double, each shortened at random by up to a half. Only the first failure is
        logged, as `database_unavailable`.
        """
        pause_seconds = FIRST_PAUSE_SECONDS * 2.0 ** min(self._attempts, 30)
        pause_seconds = min(pause_seconds, self._longest_pause_seconds)
        pause_seconds *= 1 - self._chance() / 2
        if self._began is None:
            self._began = self._clock()
            _log.warning(
                "database_unavailable",
                database=self._database,
                reason=error.reason,
                sqlstate=error.sqlstate,
            )
        self._attempts += 1
        self._due = self._clock() + pause_seconds
        return pause_seconds

    def over(self) -> None:
        """Note that an attempt succeeded; after a failure, log `database_available`."""
        if self._began is not None:
            seconds = round(self._clock() - self._began, 2)
            _log.info(
                "database_available",
                database=self._database,
                seconds=seconds,
                attempts=self._attempts,
            )
        self._began = None
        self._attempts = 0
        self._due = self._clock()
