"""The contestants, each in the mode that promises most, set up as its documentation recommends."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from benchmarks.contestants.work import Unavailable
from benchmarks.faults.kinds import Kind
from benchmarks.processes import Command

COMMIT_SECONDS = 0.5
PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Task:
    """What one instance of a contestant is to do.

    Args:
        instance: its number, from 1; an instance that is started again keeps it.
        directory: for its files; those of an instance that is started again are still there.
        raise_file: the transform removes it and fails once.
    """

    bootstrap_servers: str
    input_topic: str
    outputs: tuple[str, str]
    group: str
    instance: int
    directory: Path
    raise_file: Path
    session_seconds: float
    transaction_seconds: float
    replicas: int

    @property
    def transactional_id(self) -> str:
        return f"{self.group}-{self.instance}"

    def environment(self) -> dict[str, str]:
        """The variables by which a contestant's program is told."""
        return {
            "FAULTS_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "FAULTS_INPUT": self.input_topic,
            "FAULTS_OUTPUT": self.outputs[0],
            "FAULTS_SECOND_OUTPUT": self.outputs[1],
            "FAULTS_GROUP": self.group,
            "FAULTS_TRANSACTIONAL_ID": self.transactional_id,
            "FAULTS_COMMIT_SECONDS": f"{COMMIT_SECONDS:g}",
            "FAULTS_SESSION_TIMEOUT_MS": f"{self.session_seconds * 1000:.0f}",
            "FAULTS_TRANSACTION_TIMEOUT_MS": f"{self.transaction_seconds * 1000:.0f}",
            "FAULTS_REPLICAS": str(self.replicas),
            "FAULTS_DIRECTORY": str(self.directory),
            "FAULTS_RAISE": str(self.raise_file),
        }


class Peer(Protocol):
    """A contestant."""

    @property
    def name(self) -> str: ...

    @property
    def promise(self) -> str:
        """What it promises of its outputs."""
        ...

    @property
    def settings(self) -> str:
        """How it is set up, for the page."""
        ...

    @property
    def not_struck(self) -> Mapping[Kind, str]:
        """Why some faults cannot strike it: it sends no such request."""
        ...

    def prepare(self) -> str:
        """Install or compile what it needs and return its version.

        Raises:
            Unavailable: it cannot run here.
        """
        ...

    def before(self, task: Task) -> Command | None:
        """Return the command that runs once before the first instance; None: none is needed."""
        ...

    def command(self, task: Task) -> Command:
        """Return the command of an instance."""
        ...


EXACTLY_ONCE = "exactly once"


@dataclass(frozen=True)
class Framework:
    """`eosframework run-worker` with default settings."""

    name: str = "eosframework"
    promise: str = EXACTLY_ONCE
    settings: str = "default settings, a store; timeouts and commit interval as for everyone"
    not_struck: Mapping[Kind, str] = field(default_factory=dict[Kind, str])

    def prepare(self) -> str:
        return version("eosframework")

    def before(self, task: Task) -> Command:
        return self._run("apply", task, {"kafka.bootstrap_servers": task.bootstrap_servers})

    def command(self, task: Task) -> Command:
        chosen = {
            "kafka.bootstrap_servers": task.bootstrap_servers,
            "worker.commit_interval_seconds": f"{COMMIT_SECONDS:g}",
            "worker.session_timeout_seconds": f"{task.session_seconds:g}",
            "worker.transaction_timeout_seconds": f"{task.transaction_seconds:g}",
            "worker.instance": task.transactional_id,
            "state.directory": str(task.directory / "stores"),
        }
        return self._run("run-worker", task, chosen)

    @staticmethod
    def _run(name: str, task: Task, settings: Mapping[str, str]) -> Command:
        topology = str(PROGRAMS / "framework_topology.py")
        arguments = [sys.executable, "-m", "eosframework", name, topology]
        for setting, value in settings.items():
            arguments += ["--set", f"{setting}={value}"]
        return Command(arguments, task.environment())


@dataclass(frozen=True)
class Textbook:
    """The consume-transform-produce loop of confluent-kafka's example."""

    name: str = "confluent-kafka loop"
    promise: str = EXACTLY_ONCE
    settings: str = "the transactional example, with librdkafka's rules for errors; no state"
    not_struck: Mapping[Kind, str] = field(default_factory=dict[Kind, str])

    def prepare(self) -> str:
        return version("confluent-kafka")

    def before(self, task: Task) -> None:
        return None

    def command(self, task: Task) -> Command:
        arguments = [sys.executable, "-m", "benchmarks.faults.programs.textbook"]
        return Command(arguments, task.environment())


PEERS: tuple[Peer, ...] = (Framework(), Textbook())

__all__ = ["PEERS", "Peer", "Task", "Unavailable"]
