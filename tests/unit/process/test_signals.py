"""A request to stop is heard at every moment, and is never a failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eosframework.process.signals import (
    interrupts_deferred,
    restore_default_handlers,
    signals_blocked,
    stop_requests,
)
from eosframework.process.supervisor import ChildProcess, Supervisor

LONG_SECONDS = 60.0
"""Longer than a test may take."""

WHILE_AN_EXEC_RUNS = "exec('signal.raise_signal(signal.{name})')"

WHILE_SOMETHING_IS_FREED = """
class Freed:
    def __del__(self):
        signal.raise_signal(signal.{name})

Freed()
"""

INTERRUPTED_COMMAND = """
from eosframework import cli
from eosframework.process.signals import run_and_exit

cli.COMMANDS = ("interrupted",)

@cli.app.command("interrupted")
def interrupted() -> None:
    exec("raise KeyboardInterrupt")

@cli.app.command("other")
def other() -> None:
    pass

cli._register = lambda arguments: None
run_and_exit(lambda: cli.main(["interrupted"]))
"""

ASKS_A_CHILD = """
import time
from eosframework.process.supervisor import run_in_child
from eosframework.process.signals import exit_on_signals

def work():
    print("asked", flush=True)
    time.sleep(60)
    return 0, ""

exit_on_signals()
run_in_child(work)
"""


class Told:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.signals: list[str] = []

    def info(self, event: str, *, signal: str) -> None:
        assert event == "stop_requested"
        self.signals.append(signal)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("moment", [WHILE_AN_EXEC_RUNS, WHILE_SOMETHING_IS_FREED])
def test_a_command_that_is_asked_to_stop_while_it_starts_ends_well(
    tmp_path: Path, moment: str, name: str
) -> None:
    """Where a KeyboardInterrupt would be lost, or end the interpreter by its signal."""
    code = "import signal\nfrom eosframework.process.signals import exit_on_signals\n"
    code += "exit_on_signals()\n"
    ended = run_module(tmp_path, code + moment.format(name=name) + "\nraise SystemExit(1)\n")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_command_that_is_interrupted_within_an_exec_ends_well(tmp_path: Path) -> None:
    ended = run_module(tmp_path, INTERRUPTED_COMMAND)
    assert (ended.returncode, ended.stderr) == (130, "error: interrupted; nothing was changed\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_is_asked_to_stop_takes_the_child_along_that_it_waits_for(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ASKS_A_CHILD], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(number)
        assert process.stdout.read() == ""  # both have closed it: both are gone
    assert process.returncode == 0


def test_a_request_that_comes_before_there_is_a_worker_is_passed_on_to_it() -> None:
    def work() -> int:
        told, stops = Told(), list[str]()
        with stop_requests(told) as request:
            signal.raise_signal(signal.SIGTERM)
            request.forward_to(lambda: stops.append("asked"))
            signal.raise_signal(signal.SIGINT)
        assert request.received
        return 0 if (told.signals, stops) == (["SIGTERM"], ["asked", "asked"]) else 1

    assert ChildProcess(work).wait() == 0


def test_the_same_signal_again_ends_a_process_that_takes_long_to_stop() -> None:
    def work() -> int:
        with stop_requests(Told()):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return 0

    assert ChildProcess(work).wait() == -signal.SIGINT


def test_a_signal_that_was_held_back_ends_a_child_as_soon_as_it_may() -> None:
    def work() -> int:
        with signals_blocked():
            os.kill(os.getpid(), signal.SIGTERM)
            restore_default_handlers()
        return 0

    assert ChildProcess(work).wait() == -signal.SIGTERM


class RaisesOnce:
    """Standard error; when it is flushed before the first fork, a request to stop comes."""

    def __init__(self) -> None:
        self._came = False

    def flush(self) -> None:
        if not self._came:
            self._came = True
            os.kill(os.getpid(), signal.SIGTERM)

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        return len(text)


def test_a_worker_that_is_being_started_hears_that_it_has_to_stop() -> None:
    def wait_for_long(_: str) -> int:
        threading.Event().wait(LONG_SECONDS)
        return 1

    def supervise() -> int:
        sys.stderr = RaisesOnce()
        return Supervisor(wait_for_long, ["a", "b"], LONG_SECONDS).run()

    assert ChildProcess(supervise).wait() == 0


def run_module(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    (directory / "started_module.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "started_module"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_was_started_is_noted_before_an_interruption_is_heard_of() -> None:
    noted: list[str] = []

    def start() -> None:
        with interrupts_deferred():
            signal.raise_signal(signal.SIGINT)
            noted.append("process")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert noted == ["process"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_start_off_the_main_thread_leaves_signals_alone() -> None:
    handlers: list[object] = []

    def start() -> None:
        with interrupts_deferred():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


TAKEN_APART = """\
import atexit, os, signal
from eosframework import Topology

class Native:
    def __del__(self, kill=os.kill, number=signal.SIGSEGV):
        kill(os.getpid(), number)

kept = Native()
atexit.register(print, "registered")
app = Topology("app")
app.stream("in", key="bytes", value="json").to("out")
"""


def command(
    place: Path, *arguments: str, out: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eosframework", *arguments],
        stdout=out,
        stderr=subprocess.PIPE,
        cwd=place,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_command_that_is_done_is_not_ended_by_what_native_libraries_still_do(
    tmp_path: Path,
) -> None:
    """The interpreter would be taken apart under their threads: SIGSEGV, once in many runs."""
    (tmp_path / "app.py").write_text(TAKEN_APART)
    ended = command(tmp_path, "lint", "app.py")
    assert (ended.returncode, ended.stderr) == (0, "app.py: 0 errors, 0 warnings\n")
    assert ended.stdout == "registered\n"
