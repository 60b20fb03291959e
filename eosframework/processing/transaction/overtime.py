"""Interruption of a record that would outlast its transaction, and of a long run before that.

Otherwise a slow record would expire its transaction, be replayed, and expire it again, for ever.
One daemon thread per process, the watcher, sleeps until the first deadline. When a run of records
has used its share of the transaction, the watcher makes the current record the last (`Endable`).
Later it interrupts the thread whose record is still running:

    the main thread    by SIGURG, whose handler raises `Overtime`. This ends an endless Python loop,
    and calls that a signal interrupts (PEP 475): time.sleep, the wait for a lock, a socket
    another thread     by PyThreadState_SetAsyncExc, with which Python raises `Overtime` at the next
    bytecode. This ends a Python loop; a blocking call returns first

In both cases code inside a C extension ends when it returns to Python. The main thread is treated
like another thread if the application handles SIGURG itself.

SIGALRM and the interval timers are left to the application and to test runners (pytest-timeout uses
both). SIGURG is ignored by default, so a late signal, or one to a process that this one executed,
is harmless; Go's runtime uses it for preemption for the same reason.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import get_ident
from time import monotonic
from types import CodeType, FrameType
from typing import Any, Protocol

from eosframework.errors import RecordTooSlow, TransactionTooLong

REPEAT_SECONDS = 1.0
"""Interval of further interruptions while the record is still running: a bare `except:` may have
swallowed the first, or a blocking call may have begun just after it."""

SLACK_SECONDS = 0.05
"""Tolerated delay of an interruption. The deadline of a transaction is computed for each slice
and differs by microseconds; without slack each earlier one would wake the watcher."""

LEAST_RUN_SECONDS = 0.1
"""Minimum time of a run, so that each run processes a record."""

NEVER = float("inf")
"""The deadline of a timer that is not armed."""

_SET_ASYNC_EXC = ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(_SET_ASYNC_EXC)
_raise_nothing_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(_SET_ASYNC_EXC)


class Overtime(BaseException):
    """Raised inside the user's function; not an Exception, which functions may catch."""


class Endable(Protocol):
    """A run of records that can be ended early."""

    def end(self) -> None:
        """Make the current record the last; called by the watcher."""
        ...


class RecordTimer:
    """A one-shot timer around the user's functions, for one thread at a time.

    It interrupts the thread that called `start`. All timers of a process share one watcher, which
    starts with the first deadline and ends when it wakes up and no timer is armed.

    Attributes:
        deadline: by `time.monotonic`; NEVER: the timer is not armed.
        run: the time of an early end, and the run to end; None: there is none, or it was ended.
        next_look: time by which the watcher reads `deadline` again; NEVER: it does not.
        thread: the thread to interrupt.
        interrupted_for: the last deadline for which the watcher interrupted; None: there was none.
        repeat_at: time of the next interruption if the deadline is still the same.
        raised: whether an exception was set in `thread` that `stop` must clear.
    """

    __slots__ = (
        "deadline",
        "interrupted_for",
        "next_look",
        "raised",
        "repeat_at",
        "run",
        "thread",
    )

    def __init__(self) -> None:
        self.thread = 0
        self.forget()

    def start(self, seconds: float, run: Endable | None = None, share_seconds: float = 0) -> None:
        """Raise `Overtime` in the calling thread after `seconds`, and each second after that.

        This writes the deadline, and wakes the watcher only if it would sleep past it.

        Args:
            seconds: from now.
            run: the run to end before that; None: there is none.
            share_seconds: time from now at which the run is ended.
        """
        now = monotonic()
        self.thread = get_ident()
        self.run = None if run is None else (now + share_seconds, run)
        self.deadline = now + seconds  # S1
        first = now + (seconds if run is None else min(seconds, share_seconds))
        if first < self.next_look:  # S2
            _watcher.watch(self, first)

    def stop(self) -> None:
        """Disarm; once this has returned, no `Overtime` follows.

        Raises:
            Overtime: it was raised at the entry of this method. The timer may still be armed, so
                the caller calls `stop` again; the next `Overtime` is a second away.
        """
        # A signal that is on its way finds in its handler that no deadline has passed. An exception
        # that was set in a thread is raised whatever the timer says:
        #
        #   1. the watcher finds that the deadline of a thread has passed
        #   2. the thread's function returns, and it disarms the timer here
        #   3. the watcher sets the exception
        #   4. Python raises it, anywhere after `stop`
        #
        # So the watcher writes `raised` before it reads the deadline once more (in `_interrupt`),
        # and the thread writes the deadline before it reads `raised`: either the watcher sees that
        # the timer is not armed, or the thread sees `raised`. It then waits for the lock until the
        # exception is set, and takes it back. Python may raise the exception before that, at any
        # bytecode below; the watcher sets no other then, and the second call resets `raised`.
        self.deadline = NEVER
        self.run = None
        if self.raised:
            try:
                _watcher.take_back(self)
            except Overtime:
                _watcher.take_back(self)

    def close(self) -> None:
        """Disarm, and end the watcher of this process unless another timer is armed.

        The timer can be used again, which starts another watcher.
        """
        self.stop()
        end_idle_watcher()

    def forget(self) -> None:
        """Reset the timer to the state of a new one."""
        self.deadline = NEVER
        self.run: tuple[float, Endable] | None = None
        self.next_look = NEVER
        self.interrupted_for: float | None = None
        self.repeat_at = 0.0
        self.raised = False


class _Watcher:
    """Sleeps until the first deadline of the timers that it watches; never polls.

    One watcher serves all timers of a process: tests have many timers, and a thread for each would
    stay until its last deadline. It ends when no timer is armed, because a remaining thread looks
    like a leak, and makes Python 3.12 and later warn at each fork.

    Threads wait for a `threading.Lock` only. Its `with` is written in C and admits no exception
    between the acquisition and the block; that of a Condition does, and would leave it locked.
    """

    def __init__(self) -> None:
        self._watched: set[RecordTimer] = set()
        self.forget()

    def watch(self, timer: RecordTimer, deadline: float) -> None:
        """Check a timer by `deadline`."""
        _handle_signal()
        with self._lock:
            self._watched.add(timer)
            if self._bell is None:
                self._begin()
            else:
                _ring(self._bell)
            timer.next_look = deadline - SLACK_SECONDS

    def take_back(self, timer: RecordTimer) -> None:
        """Clear an exception that was set in a timer's thread; called by that thread."""
        with self._lock:
            _raise_nothing_in(timer.thread, None)
            timer.raised = False

    def end_if_idle(self) -> None:
        """End the thread and wait for it, unless a timer is armed."""
        with self._lock:
            thread, bell = self._thread, self._bell
            if thread is None or bell is None or self._look() < NEVER:
                return
            self._thread = self._bell = None
            _ring(bell)
        thread.join()

    def forget(self) -> None:
        """Reset the watcher in a child after a fork: its thread is gone, its lock may be locked."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: threading.Lock | None = None
        watched, self._watched = self._watched, set[RecordTimer]()
        for timer in watched:
            timer.forget()

    def raise_overtime(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGURG: raise if the record of the main thread is past its deadline."""
        main, now = get_ident(), monotonic()
        if any(t.deadline <= now and t.thread == main for t in tuple(self._watched)):
            raise Overtime

    def _begin(self) -> None:
        self._bell = bell = threading.Lock()
        bell.acquire()
        self._thread = threading.Thread(
            target=self._run, args=(bell,), name="eos-overtime", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:  # If it runs nevertheless, it ends: its bell is not the watcher's.
            self._thread = self._bell = None
            raise

    def _run(self, bell: threading.Lock) -> None:
        while True:
            with self._lock:
                if self._bell is not bell:
                    return
                first = self._look()
                if first == NEVER:
                    self._thread = self._bell = None
                    return
            bell.acquire(timeout=min(max(first - monotonic(), 0), threading.TIMEOUT_MAX))

    def _look(self) -> float:
        """Interrupt overdue records; return the time of the next check. The lock is held."""
        # A timer is armed without the lock:
        #
        #   1. the watcher reads that a timer is not armed
        #   2. `start` writes a deadline (S1) and reads by when the watcher looks (S2): soon
        #   3. the watcher goes to sleep, or ends
        #
        # No thread would check that deadline. So the watcher withdraws its next look before it
        # reads the deadline: if it misses S1, S2 follows that and calls `watch`, or finds the next
        # look that the watcher wrote last, which holds.
        first, now = NEVER, monotonic()
        for timer in tuple(self._watched):
            timer.next_look = NEVER
            deadline = timer.deadline
            if deadline == NEVER:
                self._watched.discard(timer)
                continue
            due = timer.repeat_at if deadline == timer.interrupted_for else deadline
            if due <= now:
                _interrupt(timer, deadline)
                timer.interrupted_for = deadline
                timer.repeat_at = due = now + REPEAT_SECONDS
            due = min(due, _end_run(timer, now))
            timer.next_look = due - SLACK_SECONDS
            first = min(first, due)
        return first


def _end_run(timer: RecordTimer, now: float) -> float:
    """End the run of a timer if its share is used up; return when that will be, or NEVER.

    The run that is read may be over; ending it then has no effect, because the next run has its own
    time.
    """
    waiting = timer.run
    if waiting is None:
        return NEVER
    at, run = waiting
    if at > now:
        return at
    run.end()
    if timer.run is waiting:
        timer.run = None
    return NEVER


def _interrupt(timer: RecordTimer, deadline: float) -> None:
    is_main = timer.thread == threading.main_thread().ident
    if is_main and signal.getsignal(signal.SIGURG) == _watcher.raise_overtime:
        signal.pthread_kill(timer.thread, signal.SIGURG)
        return
    timer.raised = True
    if timer.deadline == deadline:
        _raise_in(timer.thread, Overtime)
    else:
        timer.raised = False


def _handle_signal() -> None:
    """Install the SIGURG handler, on the main thread, unless the application has one.

    The handler stays installed; it does nothing while no record is overdue.
    """
    if get_ident() != threading.main_thread().ident:
        return
    if signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN):
        with suppress(ValueError):  # Python is embedded, and its main thread is another one.
            signal.signal(signal.SIGURG, _watcher.raise_overtime)


def _ring(bell: threading.Lock) -> None:
    """Wake the thread that waits, or will wait, for a lock. The watcher's lock is held."""
    if bell.locked():
        bell.release()


_watcher = _Watcher()
os.register_at_fork(after_in_child=_watcher.forget)


def end_idle_watcher() -> None:
    """End the watcher thread of this process, and wait for it, if no timer is armed."""
    _watcher.end_if_idle()


def locals_where(error: BaseException, codes: Sequence[CodeType]) -> Mapping[str, Any]:
    """Return the local variables of the innermost of some functions in an error's traceback."""
    found: Mapping[str, Any] = {}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            found = trace.tb_frame.f_locals
        trace = trace.tb_next
    return found


def too_long(
    what: str, identity: object, age_seconds: float, timeout_seconds: float
) -> TransactionTooLong:
    """Return the error of work that is repeated in a transaction with fewer records."""
    return TransactionTooLong(
        f"{what} was still being processed {age_seconds:.1f} s after the transaction of "
        f"{identity} began, which may take {timeout_seconds:g} s; it is "
        f"processed again in one with fewer records"
    )


def too_slow(
    record: str, identity: object, age_seconds: float, timeout_seconds: float
) -> RecordTooSlow:
    """Return the error for a record that would outlast its transaction.

    Args:
        record: its description.
        identity: the transactional id.
        age_seconds: the age of the transaction.
        timeout_seconds: the transaction timeout.
    """
    return RecordTooSlow(
        f"{record} was still being processed after {age_seconds:.1f} s in a transaction of its "
        f"own, but one of {identity} may take {timeout_seconds:g} s. Nothing of it was committed. "
        f"Make the function faster, or raise worker.transaction_timeout_seconds (at most the "
        f"brokers' transaction.max.timeout.ms)"
    )
