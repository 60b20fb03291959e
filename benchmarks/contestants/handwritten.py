"""A loop over confluent_kafka, written for one work alone and tuned."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from benchmarks.contestants.work import Work
from benchmarks.processes import Command

PROGRAM = Path(__file__).with_name("handwritten_program.py")


class Handwritten:
    """A loop by hand.

    Args:
        name: what it goes by in tables.
        program: the loop.
        environment: variables on top of the work's.
    """

    share = 1.0

    def __init__(
        self,
        name: str = "hand-written loop",
        program: Path = PROGRAM,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._program = program
        self._environment = dict(environment or {})

    def prepare(self) -> str:
        return f"confluent-kafka {version('confluent-kafka')}"

    def command(self, work: Work) -> Command:
        state = {"BENCH_STATE_DIRECTORY": str(work.directory / "handwritten")}
        arguments = [sys.executable, str(self._program)]
        return Command(arguments, work.environment() | state | self._environment)
