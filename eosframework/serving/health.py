"""`/health`: 200 while the worker's turns go on, else 503 with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

from eosframework.processing.plan import WorkerCounts
from eosframework.serving.pages import Answer, Request


class Health:
    """Knows when the main thread took its last turn; it tells, any thread asks.

    Args:
        longest_turn_seconds: after so long without a turn the worker counts as stuck.
        waiting_tasks: how many tasks do not have their state yet.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        longest_turn_seconds: float,
        waiting_tasks: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._longest_turn_seconds = longest_turn_seconds
        self._waiting_tasks = waiting_tasks
        self._clock = clock
        self._last: tuple[float, WorkerCounts] | None = None

    def turn(self, counts: WorkerCounts) -> None:
        """Say that the main thread goes on."""
        self._last = self._clock(), counts

    def page(self, request: Request) -> Answer:
        """Answer for `/health`."""
        if self._last is None:
            return _not("starting", "no turn yet: the worker joins its group")
        at, counts = self._last
        seconds = self._clock() - at
        if seconds > self._longest_turn_seconds:
            return _not(
                "stuck",
                f"the last turn was {seconds:.0f} s ago; a broker does not answer, or a function "
                f"does not return",
            )
        if tasks := self._waiting_tasks():
            return _not(
                "restoring",
                f"{tasks} tasks wait for their state, {counts.restoring} records of changelogs",
            )
        content = {"status": "running", "turn_seconds_ago": round(seconds, 3)}
        return Answer(HTTPStatus.OK, content | {"records": counts.records, "lag": counts.lag})


def _not(status: str, reason: str) -> Answer:
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, {"status": status, "reason": reason})
