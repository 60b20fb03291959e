"""A demo as a user runs it, in a process of its own, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.support.processes.waiting import PATIENCE_SECONDS, wait_until


class Demo:
    """`eosframework demo flights` or another one, with a temporary directory of its own."""

    def __init__(self, directory: Path, command: str, *arguments: str) -> None:
        self.directory = directory
        self.story = directory / "story.txt"
        with self.story.open("wb") as story:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "eosframework", command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=story,
                stderr=subprocess.STDOUT,
                env=os.environ | {"TMPDIR": str(directory), "COLUMNS": "200"},
            )

    def told(self) -> str:
        return self.story.read_text(errors="replace")

    def verdict(self) -> dict[str, Any]:
        """The object on the last line."""
        return json.loads(self.told().splitlines()[-1])

    def wait_until_told(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        wait_until(
            lambda: text in self.told() or self.process.poll() is not None,
            f"{text!r} in {self.story}",
            seconds,
        )
        assert text in self.told(), self.told()

    def left_running(self) -> list[str]:
        """Processes that have something to do with this run."""
        found: list[str] = []
        for process in psutil.process_iter():
            try:
                command = " ".join(process.cmdline())
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                    continue
                if str(self.directory) in command + process.environ().get("TMPDIR", ""):
                    found.append(command)
            except psutil.Error:
                continue
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_SECONDS)
