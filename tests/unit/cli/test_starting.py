"""The program before its command line is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eosframework.process.interrupts import is_long_running

STOPPED_IMPORT = """
import os, signal, sys

pid = os.getpid()

class Stop:
    def find_spec(self, name, path, target=None):
        if name == "typer":
            print("asked to stop", flush=True)
            os.kill(pid, signal.SIGNAL)

sys.meta_path.insert(0, Stop())
from eosframework import __main__
os.getpid = lambda: PID
__main__.main()
"""


def start(signal_name: str, *arguments: str, pid: str) -> subprocess.CompletedProcess[str]:
    program = STOPPED_IMPORT.replace("SIGNAL", signal_name).replace("PID", pid)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_ctrl_c_while_modules_are_imported_leaves_no_traceback() -> None:
    done = start("SIGINT", pid="pid")
    assert (done.stdout, done.returncode, done.stderr) == ("asked to stop\n", 0, "")


def test_ctrl_c_while_a_command_is_imported_that_does_one_thing_says_so() -> None:
    done = start("SIGINT", "audit", "--json", pid="pid")
    told = "interrupted; nothing was changed"
    assert (done.returncode, done.stderr) == (130, f"error: {told}\n")
    assert done.stdout == f'asked to stop\n{{"error": "{told}"}}\n'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run-worker app.yaml", True),
        ("relay-outbox --until-caught-up", True),
        ("relay-outbox reconcile --yes", False),
        ("backfill status app.yaml --job history --watch", True),
        ("backfill run app.yaml --job history", False),
        ("audit app.yaml", False),
        ("", True),
    ],
)
def test_a_command_that_lasts_is_told_from_one_that_does_one_thing(
    line: str, expected: bool
) -> None:
    assert is_long_running(line.split()) == expected


def test_process_1_can_be_stopped_while_modules_are_imported() -> None:
    done = start("SIGTERM", pid="1")
    assert (done.stdout, done.returncode, done.stderr) == ("asked to stop\n", 0, "")
