"""Faults end or stop their process before the point behind them is reached."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from eosframework.testing.faults import Action, Fault, arm
from eosframework.transactions import failpoints

POINT = "transaction.before_commit"
REPEATS = 8
"""A stop sent to the process instead of the thread let seven of ten threads go on."""


def run_into_the_fault(directory: Path, passed: int) -> None:
    """Reach the armed point in a thread of a busy process, and write to `passed` behind it."""

    def reach_the_point() -> None:
        failpoints.hit(POINT)
        os.write(passed, b"x")

    def turn() -> None:
        while True:
            sum(range(1000))

    arm([Fault(POINT, Action.STOP)], directory)
    for _ in range(3):
        threading.Thread(target=turn, daemon=True).start()
    thread = threading.Thread(target=reach_the_point)
    thread.start()
    thread.join()


def test_no_thread_passes_the_point_at_which_its_process_stops(tmp_path: Path) -> None:
    for number in range(REPEATS):
        directory = tmp_path / str(number)
        directory.mkdir()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        if (child := os.fork()) == 0:
            run_into_the_fault(directory, writing)
            os._exit(1)
        try:
            _, status = os.waitpid(child, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            assert (directory / f"{POINT}.fired").exists()
            with pytest.raises(BlockingIOError):
                os.read(reading, 1)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading)
            os.close(writing)
