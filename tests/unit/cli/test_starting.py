"""The program before its command line is there."""

from __future__ import annotations

import subprocess
import sys

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


def start(signal_name: str, *, pid: str) -> subprocess.CompletedProcess[str]:
    program = STOPPED_IMPORT.replace("SIGNAL", signal_name).replace("PID", pid)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


def test_ctrl_c_while_modules_are_imported_leaves_no_traceback() -> None:
    done = start("SIGINT", pid="pid")
    assert (done.stdout, done.returncode, done.stderr) == ("asked to stop\n", 0, "")


def test_process_1_can_be_stopped_while_modules_are_imported() -> None:
    done = start("SIGTERM", pid="1")
    assert (done.stdout, done.returncode, done.stderr) == ("asked to stop\n", 0, "")
