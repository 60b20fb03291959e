"""Commands of eosframework that the demos run beside themselves, and what their logs say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
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


class Service:
    """A command that runs until it is asked to stop; it ends with this process, however that ends.

    Args:
        name: what it goes by in messages.
        arguments: the command and its arguments.
        log_file: takes its log events, as JSON, behind what is there.
        environment: settings that nobody else is to see; those of this process are not passed on.
        directory: where it runs; None: where this process does.
    """

    def __init__(
        self,
        name: str,
        arguments: list[str],
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
                [sys.executable, "-m", "eosframework", *arguments, "--set", "log.format=json"],
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
        """Its process id, and that of its group."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def require_running(self) -> None:
        """Return if it runs.

        Raises:
            ComponentFailed: it ended; says with what, and its last words.
        """
        code = self._process.poll()
        if code is not None:
            last = self._log_file.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise ComponentFailed(
                f"{self._name} ended with exit code {code}; the last log lines:\n  "
                + "\n  ".join(last)
            )

    def new_events(self) -> Iterator[dict[str, Any]]:
        """Give the log events that were written since the last call."""
        with self._log_file.open("rb") as log:
            log.seek(self._from)
            *lines, unfinished = log.read().split(b"\n")
            self._from = log.tell() - len(unfinished)
        for line in lines:
            if line.startswith(b"{"):
                yield orjson.loads(line)

    def finish(self, seconds: float, on_turn: Callable[[], None]) -> None:
        """Wait until it has ended by itself, and well.

        Args:
            seconds: how long that may take.
            on_turn: called a few times a second meanwhile; may raise.

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
        """SIGKILL it, and nothing that it has started; that ends with this process."""
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended; one that had not begun yet ends by the signal.

        Raises:
            ComponentFailed: it did not end in time, or not well.
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
        """Make sure that nothing of it runs any more, and return how it ended."""
        if not self._ended:
            self._ended = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._guard.kill()
            self._guard.communicate()
        return self._process.returncode
