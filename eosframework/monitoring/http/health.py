"""The probes `/livez`, whether the main thread makes turns, and `/readyz`, whether it does work.

A process that is not live should be restarted. A process that is not ready is starting or
recovering, and a restart would only delay it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus

from eosframework.monitoring.http.exchange import Answer, Request
from eosframework.process.watchdog import place_of


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason that a process is not ready.

    Args:
        code: a word for programs.
        message: the state, and the next step for an operator.
    """

    code: str
    message: str


class Health:
    """The health of a process; its main thread, which creates this, reports its turns.

    Args:
        longest_turn_seconds: time without a turn after which the process is not ready.
        stuck_seconds: time without a turn after which the process is not live.
        clock: in seconds; the watchdog's, so that both agree.
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
        self._thread = threading.get_ident()

    def turn(self, reasons: Sequence[Reason]) -> None:
        """Note a turn of the main thread and the reasons that the process is not ready."""
        self._reasons = reasons
        self._last = self._clock()

    @property
    def turn_age_seconds(self) -> float:
        """Seconds since the main thread's last turn."""
        return self._clock() - (self._began if self._last is None else self._last)

    def reasons(self) -> list[Reason]:
        """Return the reasons that the process is not ready; empty: it is ready."""
        age = self.turn_age_seconds
        if age > self._longest_turn_seconds:
            return [
                Reason(
                    "stuck",
                    f"the last turn was {age:.0f} s ago; a broker or a database does not answer, "
                    f"or a function does not return: the main thread waits in {self._place()}",
                )
            ]
        if self._last is None:
            return [Reason("starting", "no turn yet: it joins its group, or checks its database")]
        return list(self._reasons)

    def livez(self, request: Request) -> Answer:
        """Answer for `/livez`."""
        age = round(self.turn_age_seconds, 3)
        if age > self._stuck_seconds:
            message = (
                f"the last turn was {age:.0f} s ago, longer than all timeouts together "
                f"({self._stuck_seconds:g} s): the main thread waits in {self._place()}. Restart "
                f"the process; its next owners resume after its last commit"
            )
            reasons = [Reason("stuck", message)]
        else:
            reasons = []
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        limit = self._stuck_seconds
        return _answer(status, reasons, turn_seconds_ago=age, limit_seconds=limit)

    def readyz(self, request: Request) -> Answer:
        """Answer for `/readyz`."""
        reasons = self.reasons()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return _answer(status, reasons)

    def _place(self) -> str:
        return place_of(self._thread)


def _answer(status: HTTPStatus, reasons: Sequence[Reason], **more: float) -> Answer:
    shown = [asdict(reason) for reason in reasons]
    return Answer(status, {"ok": status is HTTPStatus.OK, "reasons": shown, **more})
