"""A process that is told to stand still does so in all of its threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from eosframework.embedded.node import suspend_process

COUNTING = """
import os, threading
def count():
    while True:
        os.write(1, b"x")
        sum(range(100))
for _ in range(4):
    threading.Thread(target=count).start()
"""
REPEATS = 20


def test_no_thread_writes_once_a_process_is_suspended() -> None:
    child = subprocess.Popen([sys.executable, "-c", COUNTING], stdout=subprocess.PIPE)
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    try:
        assert os.read(pipe, 1)
        os.set_blocking(pipe, False)
        for _ in range(REPEATS):
            suspend_process(child.pid)
            while read(pipe):
                pass
            assert not read(pipe)
            child.send_signal(signal.SIGCONT)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_process_that_has_ended_cannot_be_suspended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(ProcessLookupError):
        suspend_process(child.pid)


def read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 1 << 16)
    except BlockingIOError:
        return b""
