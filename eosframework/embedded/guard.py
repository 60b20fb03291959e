"""The guard of an embedded server: a process that kills the server after its starter has ended.

The guard waits for the other end of a pipe to close, which the kernel does also after SIGKILL. A
death signal (PR_SET_PDEATHSIG) would fire when the *thread* that started the server ends, so it
does not work for programs that start servers in parallel.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = "eosframework.embedded.guard_process"


class Guard:
    """Kills the server in `data_dir` once this process has ended, unless dismissed."""

    def __init__(self, data_dir: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the guard; call it when the server has ended."""
        self._process.kill()
        self._process.communicate()
