"""The supervisor restarts what is killed and gives up on what fails by itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from eosframework.cli import exit_code_of
from eosframework.errors import RunError
from eosframework.process.supervisor import CRASHED, ChildProcess, Supervisor, run_in_child


def test_a_child_gives_its_exit_code_or_its_signal() -> None:
    assert ChildProcess(lambda: 3).wait() == 3
    killed = ChildProcess(lambda: os.kill(os.getpid(), signal.SIGKILL) or 0)
    assert killed.wait() == -signal.SIGKILL
    assert killed.poll() == -signal.SIGKILL
    killed.send_signal(signal.SIGTERM)


def test_a_child_that_crashes_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    def crash() -> int:
        raise ValueError("unexpected")

    assert ChildProcess(crash).wait() == CRASHED
    assert "ValueError: unexpected" in capfd.readouterr().err


def test_a_child_answers() -> None:
    assert run_in_child(lambda: (1, "no")) == (1, "no")


def run_supervisor(run_child: Callable[[str], int], names: list[str]) -> int:
    """Run a supervisor in a process of its own: it takes the signal handlers."""
    return ChildProcess(lambda: Supervisor(run_child, names, 60).run()).wait()


def test_a_killed_worker_is_started_again_under_its_name(tmp_path: Path) -> None:
    def worker(name: str) -> int:
        starts = tmp_path / name
        starts.write_text((starts.read_text() if starts.exists() else "") + "x")
        if name == "b" and starts.read_text() != "xxx":
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert run_supervisor(worker, ["a", "b"]) == 0
    assert (tmp_path / "a").read_text() == "x"
    assert (tmp_path / "b").read_text() == "xxx"


def test_a_worker_that_fails_by_itself_stops_the_others(tmp_path: Path) -> None:
    def worker(name: str) -> int:
        if name == "bad":
            while not (tmp_path / "ready").exists():
                threading.Event().wait(0.001)
            return 1
        stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: (stopped.set(), sys.exit(0)))
        (tmp_path / "ready").touch()
        stopped.wait(60)
        return 1

    assert run_supervisor(worker, ["good", "bad"]) == 1


def test_the_reason_of_the_worker_that_failed_is_kept_whatever_others_write(
    tmp_path: Path,
) -> None:
    def worker(name: str) -> int:
        if name == "bad":
            while not (tmp_path / "ready").exists():
                threading.Event().wait(0.001)
            return exit_code_of(fail)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        (tmp_path / "ready").touch()
        threading.Event().wait(60)
        return 1

    def fail() -> None:
        raise RunError("record orders[0]@7 failed")

    def supervise() -> int:
        supervisor = Supervisor(worker, ["good", "bad"], 60)
        code = supervisor.run()
        (tmp_path / "failure").write_text(str(supervisor.failure))
        return code

    assert ChildProcess(supervise).wait() == RunError.exit_code
    assert (tmp_path / "failure").read_text() == "worker bad ended: record orders[0]@7 failed"
