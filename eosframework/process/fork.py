"""Child processes started by fork, which run at once because all modules are imported already.

A restarted worker would spend most of a second on imports before it could join its group. The
parent therefore imports the modules that its children need, and creates nothing that a fork cannot
copy: no thread and no librdkafka client. Work that needs a client runs in a child (`run_in_child`).

SIGTERM and SIGINT end a child until it handles them itself. On Linux the kernel kills a child when
its parent ends, because an orphan would keep locks that the next worker needs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import NoReturn

from eosframework.process.signals import SIGNALS, handled, restore_default_handlers, signals_blocked

_parents: list[int] = []
"""Pids of this process's ancestors that forked it; empty in a process that was not forked."""

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

CRASHED = 70
"""Exit code of a child that ended by an unhandled exception (EX_SOFTWARE)."""


class ChildProcess:
    """A child process that runs a function.

    Args:
        work: runs in the child; its result is the exit code.
    """

    def __init__(self, work: Callable[[], int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._exit_code: int | None = None
        parent = os.getpid()
        # PR_SET_PDEATHSIG follows the thread that forked, and other threads end before the process.
        lasts = threading.current_thread() is threading.main_thread()
        with signals_blocked():
            self.pid = os.fork()
            if self.pid == 0:
                _parents.append(parent)
                if lasts:
                    _die_with_parent()
                _run_child(work)

    def poll(self) -> int | None:
        """Return the exit code, minus the number of the signal that ended it; None: it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the child's end and return its exit code."""
        code = self._wait(0)
        assert code is not None, "waitpid waits"
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the child has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, options: int) -> int | None:
        if self._exit_code is None:
            pid, status = os.waitpid(self.pid, options)
            if pid != 0:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code


def is_orphaned() -> bool:
    """Return whether this process is a forked child whose parent has ended."""
    return bool(_parents) and os.getppid() != _parents[-1]


def _die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; end if the parent has ended."""
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The signal is not sent for a parent that ended before the call.
    if is_orphaned():
        os._exit(CRASHED)


def run_in_child(work: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Run `work` in a child process and return its exit code and text.

    If SIGTERM or SIGINT ends this process in the meantime, the child is killed first.

    Args:
        work: returns an exit code and a short text.
    """
    reading, writing = os.pipe()

    def child() -> int:
        os.close(reading)
        code, text = work()
        with suppress(BrokenPipeError):  # The parent was killed.
            os.write(writing, text.encode())
        return code

    with ExitStack() as until_answered:
        with signals_blocked():
            process = ChildProcess(child)
            until_answered.enter_context(_killed_on_signal(process))
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read().decode()
        return process.wait(), text


@contextmanager
def _killed_on_signal(process: ChildProcess) -> Generator[None]:
    """Kill a child before a signal to stop ends this process."""
    former = {number: signal.getsignal(number) for number in SIGNALS}

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(signal.SIGKILL)
        signal.signal(number, former[signal.Signals(number)])
        signal.raise_signal(number)

    with handled(pass_on):
        yield


def _run_child(work: Callable[[], int]) -> NoReturn:
    code = CRASHED
    try:
        restore_default_handlers()
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # Exit even if the flush fails, or the child would run the parent's code.
            os._exit(code)
