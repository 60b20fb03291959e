"""The watchdog: ends a process whose main thread is stuck.

Python runs signal handlers on the main thread, between two bytecodes. A main thread that waits
inside librdkafka neither notices SIGTERM nor can be interrupted, and such a call may never return.
Ending the process is safe at any moment: its open transactions are ended by the next owner's
init, or by the brokers when they time out.

    age of the turn                  the process
    above the transaction timeout    is not ready
    above the limit of a turn        is not live
    above that and `probe_seconds`   ends itself

So a liveness probe restarts the process first and its answer is kept with the restart; without a
probe the process ends all the same. Both read `Watchdog.clock`, and agree.

A user's function that never returns ends it in the same way; nothing is raised in a function,
which may hold a lock. The message names the record and the step.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, Protocol, Self

import structlog

from eosframework.engine.task.running_step import running_step

STEP_SECONDS = 0.1
LONGEST_STEP_SECONDS = 1.0
"""Longest time that one step counts. A longer step means that the whole process was suspended, and
with it the main thread's call."""

REPORT_SECONDS = 2.0
"""Longest wait for writing the last message, since its reader may have stopped reading."""

STACK_CALLS = 20
"""The most calls of a stack in the last message, the innermost ones."""

EXIT_CODE = 1

PROBE_SECONDS = 90.0
"""Time in which a liveness probe may end the process, with the place in its answer: more than the
six failures in a row, one each 10 s, of docker/kubernetes."""

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class TurnWatch(Protocol):
    """The watch over the turns of a worker's thread: `Watchdog` or `EmbeddedWatch`."""

    turn_seconds: float

    def turn(self) -> None:
        """Note that the thread has completed a turn."""

    def clock(self) -> float:
        """Return the seconds that the process has run, without those in which it was suspended."""
        ...


class Watchdog:
    """Watches the main thread for the length of a `with` block in it.

    Args:
        turn_seconds: longest time between two calls of `turn`.
        probe_seconds: time after it that is left to a liveness probe.
        stop_seconds: longest time from SIGTERM or SIGINT to the end of the block.
        restarted: a supervisor restarts this process if a signal kills it. Then a turn that takes
            too long ends it by SIGKILL instead of exit code 1, and without `probe_seconds`: a probe
            would restart the other processes of the supervisor, too. A function that does not
            return would not do so after a restart either: it ends it with exit code 1.
        end: ends the process, in tests; None: as described for `restarted`.
    """

    def __init__(
        self,
        *,
        turn_seconds: float,
        stop_seconds: float,
        probe_seconds: float = 0.0,
        restarted: bool = False,
        end: Callable[[], object] | None = None,
    ) -> None:
        self.turn_seconds = turn_seconds
        self._end_seconds = turn_seconds + (0.0 if restarted else probe_seconds)
        self._running_seconds = 0.0
        self._stop_seconds = stop_seconds
        self._restarted = restarted
        self._end = end
        self._turns = 0
        self._main = threading.get_ident()
        self._reading, self._writing = os.pipe()
        self._arrivals = select.poll()
        self._arrivals.register(self._reading, select.POLLIN)
        self._over = False
        self._former_wakeup = -1

    def __enter__(self) -> Self:
        os.set_blocking(self._writing, False)
        # Python's C-level handler writes the signal's number here even if the main thread is stuck.
        self._former_wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="eos-watchdog", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        signal.set_wakeup_fd(self._former_wakeup)
        os.close(self._writing)

    def turn(self) -> None:
        """Note that the main thread has completed a turn."""
        self._turns += 1

    def clock(self) -> float:
        """Return the seconds that the process has run, without those in which it was suspended."""
        return self._running_seconds

    def _watch(self) -> None:
        turn, turn_took_seconds, stop_took_seconds = self._turns, 0.0, None
        while not self._over:
            took_seconds, asked_to_stop = self._step()
            self._running_seconds += took_seconds
            turn_took_seconds = turn_took_seconds + took_seconds if turn == self._turns else 0.0
            turn = self._turns
            if stop_took_seconds is not None or asked_to_stop:
                stop_took_seconds = (stop_took_seconds or 0.0) + took_seconds
            if stop_took_seconds is not None and stop_took_seconds > self._stop_seconds:
                limit = f"worker.stop_deadline_seconds={self._stop_seconds:g}"
                self._give_up(f"did not end within {limit}", kill=False)
                break
            if turn_took_seconds > self._end_seconds:
                limit = f"{self._end_seconds:g} s, longer than all its timeouts together"
                self._give_up(f"has been stuck for {limit}", kill=self._restarted)
                break
        os.close(self._reading)

    def _step(self) -> tuple[float, bool]:
        """Wait one step; return its seconds and whether a signal to stop was received."""
        started = time.monotonic()
        came = os.read(self._reading, 64) if self._arrivals.poll(STEP_SECONDS * 1000) else b""
        took_seconds = min(time.monotonic() - started, LONGEST_STEP_SECONDS)
        return took_seconds, any(number in came for number in _STOPPING)

    def _give_up(self, what: str, *, kill: bool) -> None:
        if self._over:
            return
        is_in_function = running_step(_frame_of(self._main)) is not None
        _report(what, self._main)
        (self._end or (_kill if kill and not is_in_function else _exit))()


class EmbeddedWatch:
    """Watches a worker's thread in a program that does more than run this worker.

    It leaves signals alone, and reports a thread that is stuck instead of ending the program: the
    group gives the partitions to another worker after max.poll.interval.ms. Once the program's main
    thread has ended, the program has nothing else to do, and a worker that does not stop in time
    ends the process with exit code 1.

    Used for the length of a `with` block in the worker's thread.

    Args:
        turn_seconds: longest time between two calls of `turn`.
        stop_seconds: longest time from the end of the main thread to the end of the block.
        stop: called at the end of the main thread.
        end: ends the process, in tests; None: with exit code 1.
    """

    def __init__(
        self,
        *,
        turn_seconds: float,
        stop_seconds: float,
        stop: Callable[[], object],
        end: Callable[[], object] | None = None,
    ) -> None:
        self.turn_seconds = turn_seconds
        self._stop_seconds = stop_seconds
        self._stop = stop
        self._end = end or _exit
        self._running_seconds = 0.0
        self._turns = 0
        self._thread = threading.get_ident()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="eos-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def turn(self) -> None:
        """Note that the thread has completed a turn."""
        self._turns += 1

    def clock(self) -> float:
        """Return the seconds that the process has run, without those in which it was suspended."""
        return self._running_seconds

    def _watch(self) -> None:
        turn, turn_took_seconds, alone_seconds = self._turns, 0.0, None
        started = time.monotonic()
        while not self._over.wait(STEP_SECONDS):
            took_seconds = min(time.monotonic() - started, LONGEST_STEP_SECONDS)
            started = time.monotonic()
            self._running_seconds += took_seconds
            was_stuck = turn_took_seconds > self.turn_seconds
            turn_took_seconds = turn_took_seconds + took_seconds if turn == self._turns else 0.0
            turn = self._turns
            if turn_took_seconds > self.turn_seconds and not was_stuck:
                reason = f"has been stuck for {self.turn_seconds:g} s"
                _log_stuck(reason, self._thread)
            if alone_seconds is not None:
                alone_seconds += took_seconds
                if alone_seconds > self._stop_seconds:
                    limit = f"worker.stop_deadline_seconds={self._stop_seconds:g}"
                    _report(f"did not end within {limit}", self._thread)
                    self._end()
                    break
            elif not threading.main_thread().is_alive():
                alone_seconds = 0.0
                self._stop()


@contextmanager
def ended_unless_done(seconds: float) -> Generator[None]:
    """Run a block in the calling thread, and end the process if it takes longer.

    Used in processes of Spark, which restarts them.

    Args:
        seconds: for which the block may run.
    """
    thread = threading.get_ident()

    def end() -> None:
        _report(f"has been stuck for {seconds:g} s", thread)
        _exit()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def place_of(thread: int | None) -> str:
    """Return a thread's innermost Python function outside of `threading`, and its record.

    Args:
        thread: its identifier.
    """
    frame = _frame_of(thread)
    if frame is None:
        return "nowhere"
    code = frame.f_code
    module = frame.f_globals.get("__name__", code.co_filename)
    place = f"{module}.{code.co_qualname}, line {frame.f_lineno}"
    step = running_step(frame)
    return place if step is None else f"{place}, for {step}"


def _frame_of(thread: int | None) -> FrameType | None:
    frames: Mapping[int | None, FrameType] = {**sys._current_frames()}  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    frame = frames.get(thread)
    while frame is not None and frame.f_globals.get("__name__") == threading.__name__:
        frame = frame.f_back
    return frame


def _stack_of(thread: int | None) -> str:
    frame = _frame_of(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame, STACK_CALLS))


def _log_stuck(what: str, thread: int | None) -> None:
    stack = _stack_of(thread)
    structlog.get_logger("eosframework.worker").error(
        "worker_stuck", reason=what, waits_in=place_of(thread), stack=stack
    )


def _report(what: str, thread: int | None) -> None:
    """Write the last message, in a thread of its own: its reader may have stopped reading."""
    report = threading.Thread(target=_write_report, args=(what, thread), daemon=True)
    report.start()
    report.join(REPORT_SECONDS)


def _write_report(what: str, thread: int | None) -> None:
    stack = _stack_of(thread)
    _log_stuck(what, thread)
    print(
        f"error: the worker {what}: its thread waits in {place_of(thread)}. The process ends now; "
        f"the next owner of its partitions ends its open transactions, or the brokers do after "
        f"worker.transaction_timeout_seconds. A function that does not return for a record has to "
        f"be fixed: after a restart the record is processed again. The stack, innermost last:\n"
        f"{stack}",
        file=sys.stderr,
        flush=True,
    )


def _exit() -> NoReturn:
    os._exit(EXIT_CODE)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
