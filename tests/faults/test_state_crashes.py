"""Processes that write stores are killed, stopped and run out of disk; what they wrote is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eosframework.config import StateSettings
from eosframework.embedded.node import suspend_process
from eosframework.state.store_directories import application_directory, list_stores, written_at
from tests.support.applications.store_writer import (
    APPLICATION,
    Expected,
    backend,
    open_task,
    write_step,
    writers,
)
from tests.support.processes.waiting import PATIENCE_SECONDS

KILLS = 40


def test_a_store_killed_in_the_middle_of_writes_has_all_of_them_and_its_position(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    expected = Expected()
    with writers(tmp_path) as host:
        for _ in range(KILLS):
            pid, begins_at = host.start()
            assert begins_at == expected.steps
            acknowledged = host.kill_after(pid, draw.randrange(1, 120))
            state = backend(tmp_path)
            stores = open_task(state)
            position = stores.position("counts")
            assert position in (acknowledged, acknowledged + 1)
            expected.advance(position)
            assert expected.matches(stores)
            state.close()
    assert expected.steps > KILLS


def test_a_store_that_is_opened_again_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    with writers(tmp_path) as host:
        pid, _ = host.start()
        first = host.kill_after(pid, 10)
        pid, begins_at = host.start()
        assert begins_at in (first, first + 1)
        assert host.kill_after(pid, 10) >= begins_at + 10


def test_the_stores_of_a_process_that_stands_still_are_left_alone(tmp_path: Path) -> None:
    with writers(tmp_path) as host:
        pid, _ = host.start()
        suspend_process(pid)
        state = backend(tmp_path, "host.1")
        stores = open_task(state)
        assert stores.position("counts") is None
        write_step(stores, 0)
        places = list_stores(application_directory(StateSettings(directory=tmp_path), APPLICATION))
        stopped, other = sorted(place.path for place in places if place.held)
        assert (stopped.name, other.name) == ("host.0", "host.1")
        # The steps in the pipe may all be older than the stop: only the files tell of a later one.
        resumed_at = time.time()
        os.kill(pid, signal.SIGCONT)
        while written_at(stopped) <= resumed_at:
            host.wait_for(1)
        written = host.kill_after(pid, 30)
        state.close()

    state = backend(tmp_path, "host.0")
    expected = Expected()
    stores = open_task(state)
    position = stores.position("counts")
    assert position in (written, written + 1)
    expected.advance(position)
    assert expected.matches(stores)
    state.close()


FULL_DISK = """
import resource, sys
from pathlib import Path
from eosframework.errors import StateUnwritable
from tests.support.applications.store_writer import backend, open_task, write_step
state = backend(Path(sys.argv[1]))
stores = open_task(state)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for step in range(1000):
    try:
        write_step(stores, step)
    except StateUnwritable as error:
        print(step)
        print(error)
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 200_000))
state.close()
print("closed")
"""
"""No file may grow beyond a size: to RocksDB that is what a full disk is, an error of a write."""


def test_a_disk_that_takes_no_more_ends_the_write_and_keeps_the_store_whole(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    steps, message, closed = done.stdout.splitlines()
    assert closed == "closed"
    assert str(tmp_path) in message
    assert "File too large" in message
    assert "state.directory" in message
    expected = Expected()
    expected.advance(int(steps))
    assert expected.steps > 2
    state = backend(tmp_path)
    assert expected.matches(open_task(state))
    state.close()


@pytest.mark.parametrize("slot", ["host.0", "host.1"])
def test_a_killed_workers_stores_go_to_whoever_asks_next_on_the_machine(
    tmp_path: Path, slot: str
) -> None:
    with writers(tmp_path) as host:
        pid, _ = host.start()
        written = host.kill_after(pid, 20)
    state = backend(tmp_path, slot)
    stores = open_task(state)
    expected = Expected()
    position = stores.position("counts")
    assert position in (written, written + 1)
    expected.advance(position)
    assert expected.matches(stores)
    state.close()
