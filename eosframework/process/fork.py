"""Child processes made by fork: they run at once, because everything is imported already.

A restarted worker would spend most of a second on imports before it could join its group. The
parent therefore imports what its children need and creates nothing that a fork cannot copy: no
thread, and above all no librdkafka client. What needs a client is asked in a child of its own.

A child is ended by SIGTERM and SIGINT until it handles them itself. On Linux the kernel kills it
when its parent has ended, whatever it waits for: it would keep locks that the next one needs.
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

from eosframework.process.signals import SIGNALS, be_ended_by_signals, handled, held_back

_parents: list[int] = []
"""In a child, who forked it; and who forked that one."""

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

CRASHED = 70
"""Exit code of a child that ended by an exception nobody expected (EX_SOFTWARE)."""


class Forked:
    """A child process that runs `work` and exits with what it returns.

    Args:
        work: runs in the child; its result is the exit code.
    """

    def __init__(self, work: Callable[[], int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._exit_code: int | None = None
        parent = os.getpid()
        # The kernel means the thread that forked, and others end before their process does.
        lasts = threading.current_thread() is threading.main_thread()
        with held_back():
            self.pid = os.fork()
            if self.pid == 0:
                _parents.append(parent)
                if lasts:
                    _be_killed_without_a_parent()
                _be_the_child(work)

    def poll(self) -> int | None:
        """Return the exit code, minus the signal's number if one ended it; None: it runs."""
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
    """Tell whether this process is a child whose parent has ended, however early that was."""
    return bool(_parents) and os.getppid() != _parents[-1]


def _be_killed_without_a_parent() -> None:
    """Let the kernel kill this process when its parent ends, and end if it has ended already."""
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if is_orphaned():
        os._exit(CRASHED)


def answer_of(work: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """Run `work` in a child of its own and return its exit code and its answer.

    Whatever SIGTERM or SIGINT does to this process meanwhile, the child does not outlive it.

    Args:
        work: returns an exit code and a short text.
    """
    reading, writing = os.pipe()

    def child() -> int:
        os.close(reading)
        code, text = work()
        with suppress(BrokenPipeError):  # The parent was killed: nobody asks any more.
            os.write(writing, text.encode())
        return code

    with ExitStack() as until_answered:
        with held_back():
            process = Forked(child)
            until_answered.enter_context(_taken_along(process))
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read().decode()
        return process.wait(), text


@contextmanager
def _taken_along(process: Forked) -> Generator[None]:
    """Let a signal that asks this process to stop end a child before."""
    former = {number: signal.getsignal(number) for number in SIGNALS}

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(signal.SIGKILL)
        signal.signal(number, former[signal.Signals(number)])
        signal.raise_signal(number)

    with handled(pass_on):
        yield


def _be_the_child(work: Callable[[], int]) -> NoReturn:
    code = CRASHED
    try:
        be_ended_by_signals()
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:  # A stdout that is full must not let the child go on as its parent.
            os._exit(code)
