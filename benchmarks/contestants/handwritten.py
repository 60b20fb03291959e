"""A loop over confluent_kafka, written for one work alone and tuned."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version

from benchmarks.contestants.work import Work
from benchmarks.processes import Command


class Handwritten:
    """A loop by hand.

    Args:
        name: what it goes by in tables.
        environment: variables on top of the work's.
        module: the loop.
    """

    share = 1.0

    def __init__(
        self,
        name: str = "hand-written loop",
        environment: Mapping[str, str] | None = None,
        module: str = "benchmarks.contestants.handwritten_program",
    ) -> None:
        self.name = name
        self._environment = dict(environment or {})
        self._module = module

    def prepare(self) -> str:
        return f"confluent-kafka {version('confluent-kafka')}"

    def command(self, work: Work) -> Command:
        state = {"BENCH_STATE_DIRECTORY": str(work.directory / "handwritten")}
        arguments = [sys.executable, "-m", self._module]
        return Command(arguments, work.environment() | state | self._environment)
