"""Ends a record that would outlast its transaction, and before that a run of many records.

Without this a slow record expires its transaction, is replayed, and expires it again, for ever.
One daemon thread per process, the watcher, sleeps until the first deadline. Once a run of records
has had its share of the transaction, it lets the one that is being run be the last (`Endable`).
Later it interrupts the thread whose record is still running then:

    the main thread    by SIGURG, whose handler raises `Overtime`. That ends a Python loop that
                       never returns, and calls that a signal interrupts (PEP 475): time.sleep, the
                       wait for a lock, a socket
    another thread     by PyThreadState_SetAsyncExc, with which Python raises `Overtime` there at
                       the next bytecode. That ends a Python loop; a blocking call ends first

Code inside a C extension is ended when it comes back to Python, in both. The main thread is treated
as another one where the application handles SIGURG itself.

SIGALRM and the interval timers are left to the application and to test runners (pytest-timeout uses
both). SIGURG is ignored by default, so that one that comes late, or to a process that this one
executed, harms nobody; Go's runtime preempts with it for the same reason.
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

from eosframework.errors import RecordTooSlow

REPEAT_SECONDS = 1.0
"""How long after an interruption the next one comes if the record is still running: a bare
`except:` may have swallowed the first, or a call may have begun to block just behind it."""

SLACK_SECONDS = 0.05
"""How late an interruption may come. The deadline of a transaction is computed anew for each slice
and differs by microseconds; without slack each earlier one would wake the watcher."""

NEVER = float("inf")
"""The deadline of a timer that is not armed."""

_SET_ASYNC_EXC = ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(_SET_ASYNC_EXC)
_raise_nothing_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(_SET_ASYNC_EXC)


class Overtime(BaseException):
    """Raised inside the user's function; not an Exception, so that no `except` swallows it."""


class Endable(Protocol):
    """A run of records that can be ended early."""

    def end(self) -> None:
        """Let the record that is being run be the last; called by the watcher."""
        ...


class RecordTimer:
    """A one-shot timer around the user's functions, for one thread at a time.

    It interrupts the thread that called `start`. All timers of a process share one watcher, which
    starts with the first deadline and ends when it wakes up and no timer is armed.

    Attributes:
        deadline: by `time.monotonic`; NEVER: the timer is not armed.
        run: what ends early, and when; None: nothing does, or it was ended.
        next_look: by when the watcher reads `deadline` again; NEVER: it does not.
        thread: the one that is interrupted.
        interrupted_for: the last deadline for which the watcher interrupted; None: there was none.
        repeat_at: when it interrupts again if that is the deadline still.
        raised: whether an exception was set in `thread` that `stop` has to take back.
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
        """Raise `Overtime` in the calling thread after `seconds`, and each second again.

        This writes the deadline, and wakes the watcher only where that would sleep past it.

        Args:
            seconds: from now.
            run: is ended before; None: there is none.
            share_seconds: from now, when it is.
        """
        now = monotonic()
        self.thread = get_ident()
        self.run = None if run is None else (now + share_seconds, run)
        self.deadline = now + seconds  # S1
        first = now + (seconds if run is None else min(seconds, share_seconds))
        if first < self.next_look:  # S2
            _watcher.watch(self, first)

    def stop(self) -> None:
        """Disarm; once this has returned, no `Overtime` comes.

        Raises:
            Overtime: it was on its way and hit the entry of this method. The timer may be armed
                still, so the caller calls `stop` again; the next `Overtime` is a second away.
        """
        # A signal that is on its way finds in its handler that no deadline has passed. An exception
        # that was set in a thread is raised whatever the timer says:
        #
        #   1. the watcher finds that the deadline of a thread has passed
        #   2. the thread's function returns, and it disarms the timer here
        #   3. the watcher sets the exception
        #   4. Python raises it, anywhere behind `stop`
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

        A timer can be used again afterwards; that starts another watcher.
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
    """Sleeps until the first deadline of the timers that it watches; polls nothing.

    One for all timers of a process: there may be many timers in tests, and a thread for each would
    stay until its last deadline. It ends when it has nothing to watch, because a thread that stays
    is taken for a leak, and makes Python 3.12 and later warn of each fork.

    Threads wait for a `threading.Lock` only. Its `with` is written in C and lets no exception in
    between acquiring it and the block; that of a Condition does, and would leave it locked.
    """

    def __init__(self) -> None:
        self._watched: set[RecordTimer] = set()
        self.forget()

    def watch(self, timer: RecordTimer, deadline: float) -> None:
        """Look at a timer by `deadline`."""
        _handle_signal()
        with self._lock:
            self._watched.add(timer)
            if self._bell is None:
                self._begin()
            else:
                _ring(self._bell)
            timer.next_look = deadline - SLACK_SECONDS

    def take_back(self, timer: RecordTimer) -> None:
        """Take an exception back that was set in a timer's thread, by that thread."""
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
        """Reset the watcher in a child after a fork: no thread is left, the lock may be locked."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: threading.Lock | None = None
        watched, self._watched = self._watched, set[RecordTimer]()
        for timer in watched:
            timer.forget()

    def raise_overtime(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGURG: raise if the record of the main thread is over its time."""
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
        except BaseException:  # If it runs all the same, it ends: its bell is not the watcher's.
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
        """Interrupt what is over its time; return when to look again, with the lock held."""
        # A timer is armed without the lock:
        #
        #   1. the watcher reads that a timer is not armed
        #   2. `start` writes a deadline (S1) and reads by when the watcher looks (S2): soon
        #   3. the watcher goes to sleep, or ends
        #
        # Nobody would look at that deadline. So the watcher says that it does not look before it
        # reads the deadline: where it misses S1, S2 comes behind that and calls `watch`, or finds
        # what the watcher says last, which holds.
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
    """End the run of a timer if it has had its share; return when it will, NEVER if it has.

    The one that is read may be over, and ended in vain: another one has begun, with its own time.
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
    """Handle SIGURG, if this is the main thread and the application does not.

    The handler stays installed; where no record is over its time, it does nothing.
    """
    if get_ident() != threading.main_thread().ident:
        return
    if signal.getsignal(signal.SIGURG) in (signal.SIG_DFL, signal.SIG_IGN):
        with suppress(ValueError):  # Python is embedded: its main thread is another one.
            signal.signal(signal.SIGURG, _watcher.raise_overtime)


def _ring(bell: threading.Lock) -> None:
    """Wake the thread that acquires a lock, now or next, with the watcher's lock held."""
    if bell.locked():
        bell.release()


_watcher = _Watcher()
os.register_at_fork(after_in_child=_watcher.forget)


def end_idle_watcher() -> None:
    """End the thread behind all timers of this process, and wait for it, if none is armed."""
    _watcher.end_if_idle()


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
        f"{record} was still being processed after {age_seconds:.1f} s in a transaction of its "
        f"own, but one of {identity} may take {timeout_seconds:g} s. Nothing of it was committed. "
        f"Make the function faster, or raise worker.transaction_timeout_seconds (at most the "
        f"brokers' transaction.max.timeout.ms)"
    )
