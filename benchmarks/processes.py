"""Child processes that end with the block they were started for, with all they started."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

STOP_SECONDS = 15
_TAIL_LINES = 12


class ProcessFailed(Exception):
    """A child ended by itself or did not do what was expected of it."""


@dataclass(frozen=True)
class Command:
    """A command line with the environment variables it needs on top of this process's own."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


class Child:
    """A running command; what it prints goes to its log file."""

    def __init__(self, process: subprocess.Popen[bytes], log_file: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._log_file = log_file

    def require_running(self) -> None:
        """Raise with the end of its log if it has ended.

        Raises:
            ProcessFailed: it has ended.
        """
        code = self.process.poll()
        if code is not None:
            raise ProcessFailed(
                f"{self.process.args!r} ended with {code}; its last lines:\n{self.log_tail()}"
            )

    @property
    def log(self) -> str:
        """All that it has printed so far."""
        return self._log_file.read_text(encoding="utf-8", errors="replace")

    def log_tail(self) -> str:
        """The last lines that it printed."""
        lines = self.log.splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def descendants(self) -> list[psutil.Process]:
        """The process itself and all below it that exist."""
        try:
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_seconds(self) -> float:
        """Processor time used so far by the process and all below it."""
        total = 0.0
        for process in self.descendants():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def stop(self) -> None:
        """Ask it to stop; kill whatever is left of it after `STOP_SECONDS`."""
        family = self.descendants()
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(command: Command, log_file: Path) -> Iterator[Child]:
    """Run `command` for the length of the block."""
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            list(command.arguments),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(command.environment),
        )
    child = Child(process, log_file)
    try:
        yield child
    finally:
        child.stop()
