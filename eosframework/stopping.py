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

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
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


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal by ending this process with exit code 0; nothing is cleaned up."""
    os._exit(0)
