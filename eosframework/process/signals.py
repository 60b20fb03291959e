"""SIGTERM and Ctrl-C in commands that run until they are asked to stop.

    while it starts     the process ends at once with exit code 0: it has nothing to release
    while it runs       the command stops in order; the same signal again ends the process
    around a fork       signals are blocked until parent and child have set their handlers

Python's default, a KeyboardInterrupt, can be raised anywhere. During imports it does not end the
process reliably: in a callback of the import system it is printed and lost, and if it passes an
`exec`, such as the one in dataclasses, `python -m` ends by the signal although the exception was
handled (CPython, `run_eval_code_obj` in Python/pythonrun.c).

Sudden ends are counted. A process that the kernel kills can write nothing, and one that a library
aborts only its threads' stacks (`show_stacks`). A file next to the instance's lock counts its
starts, and a proper end, with an error or without, removes it. So the next process of the same
instance on this machine knows how many before it ended suddenly:

    1. a process starts and writes the number of earlier sudden ends + 1
    2a. it ends properly and removes the file, or
    2b. it ends suddenly and the file stays
    3. the next process of this instance reads the number

Without a place for the file, as on a full disk, sudden ends are not counted.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from eosframework.process.directories import FILE_MODE

_SUSPECT = 2
"""A single sudden end nearly always has another cause than the input."""

_MOST_DIGITS = 10


def show_stacks() -> None:
    """Write the stacks of all threads to stderr if a native library ends this process."""
    with suppress(RuntimeError, OSError):  # stderr is closed, or no file
        faulthandler.enable()


class SuddenEnds:
    """The sudden ends of one instance; its lock must be held.

    Args:
        path: of the file; the directory exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def count(self) -> int:
        """The number of processes of this instance that ended suddenly, one after the other."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return 0
        return int(content) if len(content) < _MOST_DIGITS and content.isdigit() else 0

    @property
    def are_suspect(self) -> bool:
        """True if the input may be their cause."""
        return self.count >= _SUSPECT

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count this process as one that ended suddenly, unless the block ends."""
        with suppress(OSError):
            self._write(self.count + 1)
        try:
            yield
        finally:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _write(self, number: int) -> None:
        # In place of the old content at once: a process may be killed here, too.
        new = self._path.with_suffix(".new")
        descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "w") as file:
            file.write(str(number))
        new.replace(self._path)


SIGNALS = (signal.SIGTERM, signal.SIGINT)

Handler = Callable[[int, FrameType | None], object]


class StopRequest:
    """The request to stop, which a signal makes and which is passed on to a function.

    Args:
        logger: of structlog; logs the first request.
    """

    def __init__(self, logger: Any) -> None:
        self.received = False
        self._logger = logger
        self._stop: Callable[[], object] | None = None

    def forward_to(self, stop: Callable[[], object]) -> None:
        """Call `stop` at each request, and now if there was one already."""
        self._stop = stop
        if self.received:
            stop()

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; the same one again ends the process."""
        signal.signal(number, signal.SIG_DFL)
        is_first, self.received = not self.received, True
        if self._stop is not None:
            self._stop()
        if is_first:
            self._logger.info("stop_requested", signal=signal.Signals(number).name)


def exit_on_signals() -> None:
    """End this process with exit code 0 on SIGTERM and SIGINT, until another handler is set.

    For a process that holds nothing yet that outlives it.
    """
    for number in SIGNALS:
        signal.signal(number, _exit_at_once)


@contextmanager
def stop_requests(logger: Any) -> Generator[StopRequest]:
    """Turn SIGTERM and SIGINT into a request to stop during the block.

    Args:
        logger: of structlog; logs the first request.
    """
    request = StopRequest(logger)
    with handled(request.take):
        yield request


@contextmanager
def handled(handler: Handler) -> Generator[None]:
    """Handle SIGTERM and SIGINT with a function during the block."""
    before = [signal.signal(number, handler) for number in SIGNALS]
    try:
        yield
    finally:
        for number, former in zip(SIGNALS, before, strict=True):
            # A handler that was not set from Python reads as None and cannot be set again.
            signal.signal(number, signal.SIG_DFL if former is None else former)


@contextmanager
def signals_blocked() -> Generator[None]:
    """Block SIGTERM and SIGINT until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupts_deferred() -> Generator[None]:
    """Handle a Ctrl-C during the block after it; processes that the block starts receive it.

    For blocks that start a process and note its id. An exception in between would leave an
    orphan, and a blocked signal would stay blocked in the started process. Only the main thread is
    interrupted by signals; in other threads this does nothing.
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


def restore_default_handlers() -> None:
    """Restore the default handlers of SIGTERM and SIGINT, and unblock the signals."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def run_and_exit(command: Callable[[], object]) -> NoReturn:
    """Run a command and end the process with its exit code, without finalizing the interpreter.

    Finalization frees modules while threads of ours and of native libraries may still run. A
    thread that then calls back into Python is ended in the middle of C code, which can end the
    process by SIGSEGV after the command has done its work. Functions registered with `atexit` are
    called, and all output is flushed.

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
    """Flush stdout and stderr; return the exit code, 1 instead of 0 if stdout cannot be written."""
    try:
        sys.stdout.flush()
    except (
        OSError
    ):  # Output of users' code; commands print through a stream that raises OutputLost.
        code = code or 1
    with suppress(OSError):
        sys.stderr.flush()
    return code


def _exit_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Signal handler that ends this process with exit code 0, without cleaning up."""
    os._exit(0)
