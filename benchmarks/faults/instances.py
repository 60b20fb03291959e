"""Processes of a contestant, started again when they end, as a deployment does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil

from benchmarks.faults.failures import FaultFailed, NothingProduced
from benchmarks.processes import Command

RESTART_SECONDS = 0.5
MOST_STARTS = 20
STOP_SECONDS = 15.0
STANDS_SECONDS = 10.0
_TAIL_LINES = 8


def run_once(command: Command, log_file: Path) -> None:
    """Run a command to its end.

    Raises:
        NothingProduced: it failed.
    """
    with log_file.open("ab") as log:
        code = subprocess.run(
            list(command.arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(command.environment),
            check=False,
        ).returncode
    if code != 0:
        told = log_file.read_text(encoding="utf-8", errors="replace")
        raise NothingProduced(f"{command.arguments} ended with {code}:\n{told}")


class Instance:
    """One instance: a process group that is started again whenever it ends, until it is stopped.

    Args:
        command: of each start.
        log_file: of all starts.
    """

    def __init__(self, command: Command, log_file: Path) -> None:
        self._command = command
        self.log_file = log_file
        self.starts = 0
        self._stopping = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def log_tail(self) -> str:
        """The last lines that it printed."""
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    @property
    def ended_with(self) -> int | None:
        """The exit code of the newest start; None: it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Send SIGKILL to all of it.

        Raises:
            FaultFailed: it had ended already.
        """
        process = self._process
        if process.poll() is not None:
            raise FaultFailed(f"the process to kill had ended with {process.returncode} by itself")
        os.killpg(process.pid, signal.SIGKILL)
        if process.wait(STOP_SECONDS) != -signal.SIGKILL:
            raise FaultFailed(f"the killed process ended with {process.returncode}")

    def suspend(self) -> None:
        """Send SIGSTOP to all of it, and return when it stands.

        Raises:
            FaultFailed: it does not stand.
        """
        process = self._process
        os.killpg(process.pid, signal.SIGSTOP)
        deadline = time.monotonic() + STANDS_SECONDS
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            if time.monotonic() > deadline:
                raise FaultFailed(f"process {process.pid} did not stand after SIGSTOP")
            time.sleep(0.01)

    def resume(self) -> None:
        """Send SIGCONT to all of it.

        Raises:
            FaultFailed: it had not stood until now.
        """
        process = self._process
        if psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            raise FaultFailed(f"process {process.pid} did not stand until SIGCONT")
        os.killpg(process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to stop and start it no more; what is left after `STOP_SECONDS` is killed."""
        self._stopping.set()
        self._thread.join()
        process = self._process
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        self._signal(signal.SIGKILL)
        process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                list(self._command.arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(self._command.environment),
                start_new_session=True,
            )

    def _supervise(self) -> None:
        while not self._stopping.wait(RESTART_SECONDS):
            if self._process.poll() is not None and self.starts < MOST_STARTS:
                self._process = self._start()
