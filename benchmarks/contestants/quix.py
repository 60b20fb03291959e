"""Quix Streams in an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.contestants.environments import LockedEnvironment
from benchmarks.contestants.work import Work
from benchmarks.processes import Command

ENVIRONMENT = LockedEnvironment("Quix Streams", "quixstreams", "quix.lock")
LOCK = ENVIRONMENT.lock_file


class QuixStreams:
    """Quix Streams from its own locked environment: it wants other versions than ours.

    Args:
        name: what it goes by in tables.
        environment: variables on top of the work's.
    """

    share = 0.2

    def __init__(
        self, name: str = "Quix Streams", environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._environment = dict(environment or {})

    def prepare(self) -> str:
        ENVIRONMENT.install()
        return locked_version()

    def command(self, work: Work) -> Command:
        state = {"BENCH_STATE_DIRECTORY": str(work.directory / "quix")}
        arguments = [str(ENVIRONMENT.python), "-m", "benchmarks.contestants.quix_program"]
        return Command(arguments, work.environment() | state | self._environment)


def locked_version() -> str:
    """Return the version that the lock has."""
    return ENVIRONMENT.version
