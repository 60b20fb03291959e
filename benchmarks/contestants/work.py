"""The work of a contestant, and the protocol of a contestant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.inputs import PARTITIONS
from benchmarks.processes import Command
from eosframework.txnid import changelog_topic


class Unavailable(Exception):
    """A contestant cannot take part on this machine; the message says why."""


@dataclass(frozen=True)
class Work:
    """One run: which discipline, from which topic to which, under which application name."""

    bootstrap_servers: str
    input_topic: str
    output_topic: str
    application: str
    directory: Path
    """For files that last as long as the run."""
    discipline: str = "json"
    table_topic: str = ""
    """The topic with which the input is joined, if the discipline joins."""
    partitions: int = PARTITIONS
    commit_interval_seconds: float = 0.1

    @property
    def changelog_topic(self) -> str:
        """The changelog topic of a store named kept, as eosframework names it."""
        return changelog_topic(self.application, "kept")

    def environment(self) -> dict[str, str]:
        """The variables by which a contestant's program is told."""
        return {
            "BENCH_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "BENCH_INPUT": self.input_topic,
            "BENCH_OUTPUT": self.output_topic,
            "BENCH_CHANGELOG_TOPIC": self.changelog_topic,
            "BENCH_DISCIPLINE": self.discipline,
            "BENCH_TABLE": self.table_topic,
            "BENCH_PARTITIONS": str(self.partitions),
            "BENCH_APPLICATION": self.application,
            "BENCH_COMMIT_SECONDS": str(self.commit_interval_seconds),
        }


class Contestant(Protocol):
    """A program that does the work. Its consumer group has the application's name."""

    name: str
    share: float
    """Of the records of a full run, how many it is given: less for the slow ones."""

    def prepare(self) -> str:
        """Install or compile what it needs and return its version.

        Raises:
            Unavailable: it cannot run here.
        """
        ...

    def command(self, work: Work) -> Command:
        """The command that does `work` until it is asked to stop."""
        ...
