"""What is asked of a child process, and what becomes of it without its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from eosframework.forked import Forked, answer_of, is_orphaned

KILLS_ITS_PARENT = """
import os, signal, time
from eosframework.forked import answer_of

def work():
    parent = os.getppid()
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.001)
    return 0, "nobody hears this"

answer_of(work)
"""


def test_a_child_answers_with_its_exit_code_and_a_text() -> None:
    assert answer_of(lambda: (3, "what it found")) == (3, "what it found")


def test_a_child_whose_parent_was_killed_ends_without_a_traceback() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", KILLS_ITS_PARENT], capture_output=True, timeout=60, check=False
    )
    assert asked.returncode == -9
    assert asked.stderr == b""


def test_a_child_whose_parent_ended_before_it_could_look_knows_that() -> None:
    reading, writing = os.pipe()

    def child() -> int:
        beginning = os.getppid()
        while os.getppid() == beginning and not is_orphaned():
            threading.Event().wait(0.001)
        os.write(writing, b"orphaned" if is_orphaned() else b"at home")
        return 0

    def parent() -> int:
        Forked(child)
        return 0

    assert not is_orphaned()
    assert Forked(parent).wait() == 0
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"orphaned"
