"""A command whose stdout is full or closed ends with one line and an exit code of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "explain errors": 1,
    "explain settings --json": 1,
    "--help": 1,
    "lint no.such.yaml --json": 2,
}
FULL = Path("/dev/full")


def run(command: str, stdout: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eosframework", *command.split()],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def closed_pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def full_disk() -> int:
    return os.open(FULL, os.O_WRONLY)


@pytest.mark.parametrize("place", [closed_pipe, full_disk], ids=lambda f: f.__name__)
def test_a_stdout_that_fails_is_one_line_and_an_exit_code(place: object) -> None:
    if place is full_disk and not FULL.exists():
        pytest.skip("there is no /dev/full here")
    expected = "was closed before" if place is closed_pipe else "No space left on device"
    for command, code in COMMANDS.items():
        stdout = place()  # type: ignore[operator]
        try:
            done = run(command, stdout)
        finally:
            os.close(stdout)
        *mistake, line = done.stderr.splitlines()
        assert line.startswith("error: stdout "), (command, done.stderr)
        assert expected in line, command
        assert (done.returncode, len(mistake)) == (code, code == 2), (command, done.stderr)


def test_a_stderr_that_fails_as_well_leaves_the_exit_code() -> None:
    stderr = closed_pipe()
    done = subprocess.run(
        [sys.executable, "-m", "eosframework", "lint", "no.such.yaml"], stderr=stderr, check=False
    )
    os.close(stderr)
    assert done.returncode == 2
