"""What SIGTERM and Ctrl-C do at each point of a command that runs until it is asked to stop.

    while it starts     it holds nothing: the process ends at once, with exit code 0
    while it runs       it takes note and stops; the same signal again ends the process
    around a fork       signals wait until parent and child know what to do with them

A KeyboardInterrupt, Python's own way, can come anywhere, and during imports it is no way to end: in
a callback of the import system it is printed and lost, and where it passes an `exec`, as those that
make dataclasses, `python -m` ends by the signal although the exception was handled (CPython,
`run_eval_code_obj` in Python/pythonrun.c).
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Handler = Callable[[int, FrameType | None], object]


class Request:
    """Whether somebody asked to stop, and whom that is passed on to.

    Args:
        logger: of structlog; is told of the first request.
    """

    def __init__(self, logger: Any) -> None:
        self.came = False
        self._logger = logger
        self._stop: Callable[[], object] | None = None

    def goes_to(self, stop: Callable[[], object]) -> None:
        """Call `stop` when somebody asks, and now if somebody did; it may be called again."""
        self._stop = stop
        if self.came:
            stop()

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; the same one again ends the process."""
        signal.signal(number, signal.SIG_DFL)
        is_first, self.came = not self.came, True
        if self._stop is not None:
            self._stop()
        if is_first:
            self._logger.info("stop_requested", signal=signal.Signals(number).name)


def end_when_asked() -> None:
    """End this process with exit code 0 on SIGTERM and SIGINT, until somebody else handles them.

    For a process that holds nothing yet but what ends with it.
    """
    for number in SIGNALS:
        signal.signal(number, end_at_once)


@contextmanager
def requests(logger: Any) -> Generator[Request]:
    """Take note of SIGTERM and SIGINT for the length of the block.

    Args:
        logger: of structlog; is told of the first request.
    """
    request = Request(logger)
    with handled(request.take):
        yield request


@contextmanager
def handled(handler: Handler) -> Generator[None]:
    """Let a function handle SIGTERM and SIGINT for the length of the block."""
    before = [signal.signal(number, handler) for number in SIGNALS]
    try:
        yield
    finally:
        for number, former in zip(SIGNALS, before, strict=True):
            signal.signal(number, former)


@contextmanager
def held_back() -> Generator[None]:
    """Let SIGTERM and SIGINT that come during the block come behind it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupted_later() -> Generator[None]:
    """Let a Ctrl-C during the block be handled behind it; what is started meanwhile hears of it.

    For blocks that start a process and note its id. An exception in between would leave a process
    that nobody knows of, and a signal that is held back would stay so in the process. Only the main
    thread is interrupted by signals; in others this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def be_ended_by_signals() -> None:
    """Let SIGTERM and SIGINT end this process by themselves, also if they were held back."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def run_to_the_end(command: Callable[[], object]) -> NoReturn:
    """Run a command and end the process with its exit code, without taking the interpreter apart.

    The interpreter would free its modules at last. Threads of ours and of native libraries may
    still run then; one that calls back into Python is ended in the middle of C code, which can end
    the process by SIGSEGV after the command has done its work. A process that ends needs none of
    it: what is registered to be called at the exit is, and all output is written.

    Args:
        command: exits as `sys.exit()` does; 0 if it returns.
    """
    code = 0
    try:
        command()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        code = 1
        traceback.print_exc()
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    os._exit(_flushed(code))


def _flushed(code: int) -> int:
    """Write what output waits, and return the exit code: 1 where that fails."""
    try:
        sys.stdout.flush()
    except OSError:  # What commands print raises OutputLost; this is output of somebody else's.
        code = code or 1
    with suppress(OSError):
        sys.stderr.flush()
    return code


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal by ending this process with exit code 0; nothing is cleaned up."""
    os._exit(0)
