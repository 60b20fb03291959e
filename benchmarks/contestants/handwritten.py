"""A loop over confluent_kafka, written for this work alone and tuned."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.contestants.work import Work
from benchmarks.processes import Command

PROGRAM = Path(__file__).with_name("handwritten_program.py")


class Handwritten:
    """The loop in `handwritten_program`."""

    name = "hand-written loop"
    share = 1.0

    def prepare(self) -> str:
        return f"confluent-kafka {version('confluent-kafka')}"

    def command(self, work: Work) -> Command:
        return Command([sys.executable, str(PROGRAM)], work.environment())
