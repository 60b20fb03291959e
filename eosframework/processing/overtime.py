"""Ends a record that would outlast its transaction.

Without this a slow record expires its transaction, is replayed, and expires it again, for ever.
The timer is SIGALRM of the main thread, so that it also ends a Python loop that never returns;
code inside a C extension is ended when it comes back to Python.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import Any


class Overtime(BaseException):
    """Raised inside the user's function; not an Exception, so that no `except` swallows it."""


class RecordTimer:
    """A one-shot timer around the user's functions. Inert outside the main thread."""

    def __init__(self) -> None:
        self._armed = False
        self._usable = threading.current_thread() is threading.main_thread()
        if self._usable:
            signal.signal(signal.SIGALRM, self._expired)

    def start(self, seconds: float) -> None:
        """Raise `Overtime` in the main thread after `seconds`, and each second again."""
        if self._usable:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 1.0)

    def stop(self) -> None:
        """Disarm. An alarm already on its way finds `_armed` false and does nothing."""
        if self._usable:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _expired(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            raise Overtime


def locals_where(error: BaseException, codes: Sequence[CodeType]) -> Mapping[str, Any]:
    """Return the variables of the innermost of some functions that an error came out of."""
    found: Mapping[str, Any] = {}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            found = trace.tb_frame.f_locals
        trace = trace.tb_next
    return found
