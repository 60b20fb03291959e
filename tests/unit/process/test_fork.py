"""What is asked of a child process, and what becomes of it without its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from eosframework.process.signals import signals_blocked
from eosframework.process.supervisor import ChildProcess, is_orphaned, run_in_child
from tests.support.processes.waiting import within

KILLS_ITS_PARENT = """
import os, signal, time
from eosframework.process.supervisor import run_in_child

def work():
    parent = os.getppid()
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.001)
    return 0, "nobody hears this"

run_in_child(work)
"""


def test_a_child_answers_with_its_exit_code_and_a_text() -> None:
    assert run_in_child(lambda: (3, "what it found")) == (3, "what it found")


def test_a_child_whose_parent_was_killed_ends_without_a_traceback() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", KILLS_ITS_PARENT], capture_output=True, timeout=60, check=False
    )
    assert asked.returncode == -9
    assert asked.stderr == b""


def test_a_child_whose_parent_ended_before_it_could_look_knows_that() -> None:
    """A thread forked it, whose end is not the parent's, so the kernel does not kill it."""
    reading, writing = os.pipe()

    def child() -> int:
        beginning = os.getppid()
        while os.getppid() == beginning and not is_orphaned():
            threading.Event().wait(0.001)
        os.write(writing, b"orphaned" if is_orphaned() else b"at home")
        return 0

    def parent() -> int:
        thread = threading.Thread(target=lambda: ChildProcess(child))
        thread.start()
        thread.join()
        return 0

    assert not is_orphaned()
    assert ChildProcess(parent).wait() == 0
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"orphaned"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
@pytest.mark.parametrize("waits", [signal.pause, lambda: signal.raise_signal(signal.SIGSTOP)])
def test_the_kernel_kills_a_child_that_does_nothing_when_its_parent_is_killed(
    waits: Callable[[], object],
) -> None:
    """Its end closes the pipe, as it lets go of locks."""
    reading, writing = os.pipe()

    def child() -> int:
        with signals_blocked():
            os.write(writing, b"ready")
            waits()
        return 0

    def parent() -> int:
        ChildProcess(child)
        os.close(writing)
        assert os.read(reading, 5) == b"ready"
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert ChildProcess(parent).wait() == -signal.SIGKILL
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert within(60, pipe.read) == b""
