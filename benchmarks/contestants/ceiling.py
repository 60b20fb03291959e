"""The ceiling of the Kafka client: one half of the work alone, from Python."""

from __future__ import annotations

import sys
from importlib.metadata import version

from benchmarks.contestants.work import Work
from benchmarks.processes import Command


class Ceiling:
    """Reads and throws away, or writes what it has at hand.

    Args:
        name: what it goes by in tables.
        mode: `consume`, `produce`, `produce-batch` or `transactions`.
        records: how many to write.
    """

    share = 1.0

    def __init__(self, name: str, mode: str, records: int) -> None:
        self.name = name
        self.mode = mode
        self._records = records

    def prepare(self) -> str:
        return f"confluent-kafka {version('confluent-kafka')}"

    def command(self, work: Work) -> Command:
        arguments = [
            *(sys.executable, "-m", "benchmarks.contestants.ceiling_program"),
            *(self.mode, str(self._records)),
        ]
        return Command(arguments, work.environment())
