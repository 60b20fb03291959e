"""`/livez` and `/readyz`: whether the main thread's turns go on, and whether work is done.

A process that is not live should be ended. One that is not ready works on what keeps it: to end it
would make that last longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus

from eosframework.monitoring.http.pages import Answer, Request


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a process is not ready.

    Args:
        code: a word for programs.
        message: what is the matter, and what to look at.
    """

    code: str
    message: str


class Health:
    """Knows when the main thread took its last turn; it tells, any thread asks.

    Args:
        longest_turn_seconds: after so long without a turn the process is not ready.
        stuck_seconds: after so long it is not live.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        longest_turn_seconds: float,
        stuck_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._longest_turn_seconds = longest_turn_seconds
        self._stuck_seconds = stuck_seconds
        self._reasons: Sequence[Reason] = ()
        self._clock = clock
        self._began = clock()
        self._last: float | None = None

    def turn(self, reasons: Sequence[Reason]) -> None:
        """Say that the main thread goes on, and why the process is not ready; empty: it is."""
        self._reasons = reasons
        self._last = self._clock()

    @property
    def turn_age_seconds(self) -> float:
        """For how long the main thread has not told anything."""
        return self._clock() - (self._began if self._last is None else self._last)

    def reasons(self) -> list[Reason]:
        """Return why the process is not ready; empty: it is."""
        age = self.turn_age_seconds
        if age > self._longest_turn_seconds:
            return [
                Reason(
                    "stuck",
                    f"the last turn was {age:.0f} s ago; a broker or a database does not answer, "
                    f"or a function does not return",
                )
            ]
        if self._last is None:
            return [Reason("starting", "no turn yet: it joins its group, or looks at its database")]
        return list(self._reasons)

    def livez(self, request: Request) -> Answer:
        """Answer for `/livez`."""
        age = round(self.turn_age_seconds, 3)
        if age > self._stuck_seconds:
            message = f"the last turn was {age:.0f} s ago, longer than all timeouts together"
            return _answer(
                HTTPStatus.SERVICE_UNAVAILABLE, [Reason("stuck", message)], turn_seconds_ago=age
            )
        return _answer(HTTPStatus.OK, [], turn_seconds_ago=age)

    def readyz(self, request: Request) -> Answer:
        """Answer for `/readyz`."""
        reasons = self.reasons()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _answer(status, reasons)


def _answer(status: HTTPStatus, reasons: Sequence[Reason], **more: float) -> Answer:
    shown = [asdict(reason) for reason in reasons]
    return Answer(status, {"ok": status is HTTPStatus.OK, "reasons": shown, **more})
