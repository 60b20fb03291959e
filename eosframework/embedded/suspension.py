"""Suspension of a process in all of its threads."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from eosframework.errors import ComponentFailed

_AT_REST = frozenset("TtZX")
"""States of a thread, as in proc(5): stopped, traced, ended."""
_POLL_SECONDS = 0.005


def suspend_process(pid: int, *, deadline_seconds: float = 60) -> None:
    """Send SIGSTOP to a process and return once none of its threads runs.

    Raises:
        ProcessLookupError: there is no such process.
        ComponentFailed: a thread still ran at the deadline; the process may stop later.
    """
    # 1. kill() returns; the kernel has chosen a thread to take the signal.
    # 2. On a busy machine that thread sleeps, and the signal has no effect yet.
    # 3. The other threads run: a broker answered a request that came after the kill().
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + deadline_seconds
    while running := _running_threads(pid):
        if time.monotonic() > deadline:
            raise ComponentFailed(
                f"process {pid} was told to stop {deadline_seconds:g} s ago, and {running} of its "
                "threads still run"
            )
        time.sleep(_POLL_SECONDS)


def _running_threads(pid: int) -> int:
    """Return the number of threads that are not at rest; 0 on a system without /proc."""
    running = 0
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The command's name is in parentheses and may contain any character.
            state = (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            running += state not in _AT_REST
    return running
