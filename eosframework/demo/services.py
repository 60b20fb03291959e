"""Child processes of the demos that run eosframework's commands, and their log events."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from eosframework.errors import ComponentFailed

STOP_SECONDS = 40.0
TURN_SECONDS = 0.2
_LAST_LINES = 8
_END_WITH_PARENT = (
    "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"
)


class Program:
    """A program that runs until it is stopped; it ends with this process in any case.

    Args:
        name: in messages.
        command: the program and its arguments.
        log_file: its output is appended.
        environment: settings that must not appear in the command line; this process' own settings
            are not inherited.
        directory: working directory; None: that of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self._name = name
        self._log_file = log_file
        self._ended = False
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("EOS_")}
        with log_file.open("ab") as log:
            self._from = log.tell()
            # A session of its own: Ctrl-C in a terminal is for the demo, which stops in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**inherited, **(environment or {})},
                cwd=directory,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            [sys.executable, "-P", "-c", _END_WITH_PARENT, str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process id, and id of its process group."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def require_running(self) -> None:
        """Check that it runs.

        Raises:
            ComponentFailed: it ended; with its exit code and last log lines.
        """
        code = self._process.poll()
        if code is not None:
            last = self._log_file.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise ComponentFailed(
                f"{self._name} ended with exit code {code}; the last log lines:\n  "
                + "\n  ".join(last)
            )

    def new_events(self) -> Iterator[dict[str, Any]]:
        """Yield the log events written since the last call."""
        with self._log_file.open("rb") as log:
            log.seek(self._from)
            *lines, unfinished = log.read().split(b"\n")
            self._from = log.tell() - len(unfinished)
        for line in lines:
            if line.startswith(b"{"):
                yield orjson.loads(line)

    def finish(self, seconds: float, on_turn: Callable[[], None]) -> None:
        """Wait until it has ended by itself, with exit code 0.

        Args:
            seconds: longest wait.
            on_turn: called a few times a second; may raise.

        Raises:
            ComponentFailed: it failed, or did not end in time.
        """
        deadline = time.monotonic() + seconds
        while (code := self._process.poll()) is None:
            if time.monotonic() > deadline:
                raise ComponentFailed(
                    f"{self._name} had not ended after {seconds:g} s; see {self._log_file}"
                )
            on_turn()
            time.sleep(TURN_SECONDS)
        if code != 0:
            self.require_running()
        self.end()

    def kill(self) -> None:
        """SIGKILL it alone; its children end with this process."""
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended; the signal ends a command that is still starting.

        Raises:
            ComponentFailed: it did not end in time, or failed.
        """
        self.ask_to_stop()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ComponentFailed(
                f"{self._name} was asked to stop and had not ended {STOP_SECONDS:g} s later; "
                f"see {self._log_file}"
            ) from None
        finally:
            self.end()
        if code not in (0, -signal.SIGTERM):
            raise ComponentFailed(
                f"{self._name} was asked to stop and ended with {code}, not 0; see {self._log_file}"
            )

    def end(self) -> int:
        """Kill all its remaining processes, and return the exit code."""
        if not self._ended:
            self._ended = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._guard.kill()
            self._guard.communicate()
        return self._process.returncode


class Service(Program):
    """A command of eosframework.

    Args:
        name: in messages.
        arguments: the command and its arguments.
        log_file: its log events, as JSON, are appended.
        environment: as for `Program`.
        directory: as for `Program`.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        command = [sys.executable, "-m", "eosframework", *arguments, "--set", "log.format=json"]
        super().__init__(name, command, log_file, environment, directory)
