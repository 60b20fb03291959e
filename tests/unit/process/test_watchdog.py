"""A main thread that neither returns nor notices a signal does not keep its process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eosframework.embedded.node import suspend_process

ROOT = Path(__file__).parents[3]

STUCK = """
import ctypes, os, resource, signal
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]  # as a worker's connections
from eosframework.process.watchdog import Watchdog
signal.signal(signal.SIGTERM, lambda *_: None)
with Watchdog(turn_seconds={turn}, stop_seconds={stop}, **{options}):
    lock = ctypes.CDLL(None).pthread_mutex_lock
    mutex = ctypes.create_string_buffer(128)
    lock(mutex)
    print("stuck", flush=True)
    lock(mutex)  # in C, for ever; no signal interrupts it
"""

HANGING = """
import sys, threading
from eosframework.process.watchdog import EmbeddedWatch, Watchdog, ended_unless_done
from tests.unit.engine.slow_functions import worker_of

held = threading.Lock()

def hang(value):
    if value == 3:
        with held:
            threading.Event().wait()
    return value

worker = worker_of(hang)
watches = {
    "worker": lambda: Watchdog(turn_seconds=0.5, stop_seconds=60),
    "supervised": lambda: Watchdog(turn_seconds=0.5, stop_seconds=60, restarted=True),
    "attempt": lambda: ended_unless_done(0.5),
}
with watches[sys.argv[1]]():
    worker.run(until_caught_up=True)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def make(
        *, turn: float = 60, stop: float = 60, probe: float = 0, restarted: bool = False
    ) -> object:
        options = {"probe_seconds": probe, "restarted": restarted}
        script = STUCK.format(turn=turn, stop=stop, options=options)
        command = [sys.executable, "-c", script]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n"
        return process

    yield make  # pyright: ignore[reportReturnType]
    for process in started:
        process.kill()
        process.communicate()


def test_a_stuck_process_ends_after_sigterm_and_says_where_it_stood(start: Start) -> None:
    process = start(stop=1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "did not end within worker.stop_deadline_seconds=1" in errors
    assert "line 13" in errors


def test_a_turn_that_never_ends_ends_the_process(start: Start) -> None:
    process = start(turn=1)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "has been stuck for 1 s" in errors


def test_under_a_supervisor_it_ends_by_a_signal_so_that_it_is_restarted(start: Start) -> None:
    process = start(turn=1, probe=600, restarted=True)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_a_liveness_probe_has_its_time_first(start: Start) -> None:
    process = start(turn=1, probe=2)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "has been stuck for 3 s" in errors


def test_a_process_that_stood_still_has_its_time_afterwards(start: Start) -> None:
    process = start(turn=5)
    suspend_process(process.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(5.5)
    process.send_signal(signal.SIGCONT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)


@pytest.mark.parametrize("place", ["worker", "supervised", "attempt"])
def test_a_function_that_never_returns_ends_the_process_and_names_the_record(place: str) -> None:
    """No restart would help, so it ends with exit code 1 under a supervisor, too."""
    ended = subprocess.run(
        [sys.executable, "-c", HANGING, place],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 1, ended.stderr
    [message] = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "for record in[0]@3 in step 'map_values(hang)'" in message
    assert "in hang\n" in ended.stderr, "the stack"
