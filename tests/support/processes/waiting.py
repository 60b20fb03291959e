"""How long tests wait: on a condition, until a deadline that only a hang reaches.

`make test` has to pass beside other work on two cores, where everything takes five to ten times as
long: a worker or a broker may need a minute to start, a rebalance half of one. A deadline that no
healthy run reaches costs nothing, so each one is far beyond that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

PATIENCE_SECONDS = 180.0
"""For whatever starts a process or a server, or waits for a rebalance: on a quiet machine 5 s."""

ATTEMPTS = 3


def wait_until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Poll until `condition` holds, ever less often; fail with `what` was waited for."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    pause_seconds = 0.01
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        pause.wait(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, 0.25)


def within(seconds: float, act: Callable[[], Result]) -> Result:
    """Return what `act` does in less than so many seconds; fail if it never is so quick.

    What is limited by its own deadline takes as long each time; a busy machine delays now this
    attempt and now that one. So the quickest of several counts.
    """
    taken: list[float] = []
    for _ in range(ATTEMPTS):
        started = time.monotonic()
        result = act()
        taken.append(round(time.monotonic() - started, 1))
        if taken[-1] < seconds:
            return result
    raise AssertionError(f"expected less than {seconds:g} s at least once; it took {taken} s")
