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

from eosframework.errors import RecordTooSlow


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


def too_slow(
    record: str, identity: object, age_seconds: float, timeout_seconds: float
) -> RecordTooSlow:
    """Return what ends a task whose record would outlast its transaction.

    Args:
        record: its description.
        identity: the transactional id.
        age_seconds: of the transaction.
        timeout_seconds: after which the brokers end it.
    """
    return RecordTooSlow(
        f"{record} was still being processed after {age_seconds:.1f} s, but a transaction of "
        f"{identity} may take {timeout_seconds:g} s. Nothing of it was committed. Make the "
        f"function faster, or raise worker.transaction_timeout_seconds (at most the brokers' "
        f"transaction.max.timeout.ms)"
    )
