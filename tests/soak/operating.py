"""Commands of an operator, repeated while they are refused or brokers are broken."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tests.support.applications.pipeline import Pipeline
from tests.support.processes.programs import Finished, run_command

COMMAND_SECONDS = 90.0
"""A killed worker is a member until its session ends, and a broker may stand still meanwhile."""


class Operator:
    """Runs commands on one application.

    Args:
        settings: of its workers, as KEY=VALUE.
    """

    def __init__(self, pipeline: Pipeline, settings: Sequence[str] = ()) -> None:
        server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
        self._pipeline = pipeline
        self._settings = [word for one in (server, *settings) for word in ("--set", one)]

    def run(self, command: str, *arguments: str) -> Finished:
        """Run a command until it does not fail.

        Args:
            command: its words up to the application.
            arguments: its words behind the application.

        Raises:
            AssertionError: it still failed after a while; says its last message.
        """
        deadline = time.monotonic() + COMMAND_SECONDS
        words = (*command.split(), str(self._pipeline.topology_file), *arguments, *self._settings)
        environment = {"XDG_STATE_HOME": str(self._pipeline.directory / "host")}
        while (done := run_command(*words, environment=environment)).exit_code:
            assert time.monotonic() < deadline, f"{command} {arguments}: {done.error}"
        return done

    def positions(self, topic: str) -> dict[int, int]:
        """Return the committed position of each partition of a topic that has one."""
        rows: list[dict[str, Any]] = self.run("positions show", "--json").json["positions"]
        return {
            row["partition"]: row["committed"]
            for row in rows
            if row["topic"] == topic and row["committed"] is not None
        }

    def fence(self, topic: str) -> dict[int, int]:
        """Set the positions where they are, once no worker is there; return them.

        The first command fences whoever sleeps, so no commit changes what the second one shows.
        """
        self.run("positions set", f"{topic}=committed")
        positions = self.positions(topic)
        self.run("positions set", *(f"{topic}[{p}]={offset}" for p, offset in positions.items()))
        assert self.positions(topic) == positions, f"the positions of {topic} are not {positions}"
        return positions
