"""A demo as a user runs it, in a process of its own, and the processes it leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psutil

from tests.support.processes.programs import RunningProgram, framework_command, start_command
from tests.support.processes.waiting import PATIENCE_SECONDS


class Demo(RunningProgram):
    """`eosframework demo flights` or another one, with a temporary directory of its own."""

    def __init__(self, directory: Path, command: str, *arguments: str) -> None:
        self.directory = directory
        self.story = directory / "story.txt"
        process = start_command(
            framework_command(command, *arguments),
            out=self.story,
            environment={"TMPDIR": str(directory), "COLUMNS": "200"},
        )
        super().__init__(process, self.story)

    def told(self) -> str:
        return self.log

    def verdict(self) -> dict[str, Any]:
        """The object on the last line."""
        return json.loads(self.told().splitlines()[-1])

    def wait_until_told(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        self.wait_for(lambda: text in self.log, repr(text), seconds)

    def left_running(self) -> list[str]:
        """Return the commands of running processes that belong to this run."""
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
