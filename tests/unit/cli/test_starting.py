"""The program before its command line is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

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


COMMAND = Path(sys.executable).with_name("eosframework")
SEED = 19

TOPOLOGY = """\
application: app
sources:
  numbers: {topic: in, key: bytes, value: json}
streams:
  copied: {from: numbers, to: [{topic: out}]}
"""

MODULES = """
import sys
before = set(sys.modules)
import eosframework.__main__
print(*sorted(set(sys.modules) - before))
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


def test_nothing_that_takes_time_is_imported_before_a_signal_is_handled() -> None:
    done = subprocess.run([sys.executable, "-c", MODULES], capture_output=True, text=True)
    assert set(done.stdout.split()) <= {
        "__future__",
        "eosframework",
        "eosframework.__main__",
        "eosframework.process",
        "eosframework.process.interrupts",
    }


def interrupted(delay_seconds: float, arguments: list[str]) -> tuple[int, str, str]:
    """Start the command, press Ctrl-C after a delay, and return its exit code and output."""
    process = subprocess.Popen(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "EOS_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"},
    )
    time.sleep(delay_seconds)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def assert_quiet(count: int, tmp_path: Path) -> None:
    """Interrupt commands at random moments of their first second.

    No package can handle a signal while the interpreter starts and imports the module of `main`:
    then there is no `main()` in the traceback.
    """
    topology = tmp_path / "app.yaml"
    topology.write_text(TOPOLOGY)
    draw = random.Random(SEED)
    ends: Counter[int] = Counter()
    for number in range(count):
        command, expected = (("describe", 130), ("run-worker", 0))[number % 2]
        delay_seconds = draw.uniform(0.05, 1)
        code, out, err = interrupted(delay_seconds, [command, str(topology)])
        case = f"seed {SEED}, {command} after {delay_seconds:.3f} s: {code} {out[-500:]} {err}"
        if "main()" not in err and code in (1, -signal.SIGINT):
            continue
        if code == 0 and command == "describe":
            continue  # It was done before.
        assert "Traceback" not in err, case
        logged = [line for line in err.splitlines(keepends=True) if line.startswith("{")]
        said = "".join(line for line in err.splitlines(keepends=True) if line not in logged)
        if command == "run-worker" and code != 0:  # It was refused: there are no brokers.
            assert said.startswith("error: "), case
            continue
        assert code == expected, case
        assert said in ("", "error: interrupted; nothing was changed\n"), case
        ends[code] += 1
    assert ends[130] + ends[0] >= count / 3, ends


def test_ctrl_c_at_any_moment_of_the_start_gives_no_traceback(tmp_path: Path) -> None:
    assert_quiet(8, tmp_path)


@pytest.mark.exhaustive
def test_ctrl_c_at_many_moments_of_the_start_gives_no_traceback(tmp_path: Path) -> None:
    assert_quiet(100, tmp_path)
