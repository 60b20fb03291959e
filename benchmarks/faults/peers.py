"""The contestants, each in the mode that promises most, set up as its documentation recommends."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from benchmarks.contestants import quix, streams_jars
from benchmarks.contestants.environments import LockedEnvironment
from benchmarks.contestants.streams import PROGRAMS as JAVA
from benchmarks.contestants.streams import compile_programs
from benchmarks.contestants.work import Unavailable
from benchmarks.faults.kinds import Kind
from benchmarks.processes import Command
from eosframework.embedded.jars import cache_directory, find_java

COMMIT_SECONDS = 0.5
PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Task:
    """The task of one instance of a contestant.

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
        """The promise about its outputs."""
        ...

    @property
    def settings(self) -> str:
        """Its settings, for the page."""
        ...

    @property
    def not_struck(self) -> Mapping[Kind, str]:
        """The reasons for which some faults cannot strike it: it sends no such request."""
        ...

    @property
    def aborts_refused_outputs(self) -> bool:
        """True if an abort is provoked by outputs that brokers refuse; else the transform fails."""
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
    settings: str = "defaults; `process` with a store"
    not_struck: Mapping[Kind, str] = field(default_factory=dict[Kind, str])
    # A record that fails ends a transaction before it, which commits.
    aborts_refused_outputs: bool = True

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
class PythonProgram:
    """A contestant that is a Python program, here or in an environment of its own.

    Args:
        module: in `benchmarks.faults.programs`.
        environment: None: ours.
        arguments: of the module.
        package: whose version is the contestant's; only of one in our environment.
    """

    name: str
    settings: str
    module: str
    environment: LockedEnvironment | None = None
    arguments: tuple[str, ...] = ()
    package: str = ""
    promise: str = EXACTLY_ONCE
    not_struck: Mapping[Kind, str] = field(default_factory=dict[Kind, str])
    aborts_refused_outputs: bool = False

    def prepare(self) -> str:
        if self.environment is None:
            return version(self.package)
        self.environment.install()
        return self.environment.version

    def before(self, task: Task) -> None:
        return None

    def command(self, task: Task) -> Command:
        python = sys.executable if self.environment is None else str(self.environment.python)
        module = f"benchmarks.faults.programs.{self.module}"
        return Command([python, "-m", module, *self.arguments], task.environment())


@dataclass(frozen=True)
class KafkaStreams:
    """Kafka Streams, exactly_once_v2, on the Java that runs the brokers."""

    name: str = "Kafka Streams"
    promise: str = EXACTLY_ONCE
    settings: str = "`exactly_once_v2`, a RocksDB store, threads are replaced after an exception"
    not_struck: Mapping[Kind, str] = field(
        default_factory=lambda: {
            Kind.LATE_PARTITIONS: "its producer adds partitions as it writes (protocol V2)",
            Kind.LATE_RECORD: "its producer waits for its records before it aborts",
        }
    )
    aborts_refused_outputs: bool = False

    def prepare(self) -> str:
        compile_programs(self._classes, JAVA / "Json.java", JAVA / "Faulted.java")
        return streams_jars.VERSION

    def before(self, task: Task) -> None:
        return None

    def command(self, task: Task) -> Command:
        arguments = [
            *(str(find_java()), "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
            *("-cp", f"{self._classes}:{streams_jars.class_path()}", "Faulted"),
        ]
        return Command(arguments, task.environment())

    @property
    def _classes(self) -> Path:
        directory = cache_directory() / streams_jars.HOME / "faulted"
        directory.mkdir(parents=True, exist_ok=True)
        return directory


@dataclass(frozen=True)
class Absent:
    """A contestant that cannot take part here."""

    name: str
    reason: str
    promise: str = EXACTLY_ONCE
    settings: str = ""
    not_struck: Mapping[Kind, str] = field(default_factory=dict[Kind, str])
    aborts_refused_outputs: bool = False

    def prepare(self) -> str:
        raise Unavailable(self.reason)

    def before(self, task: Task) -> None:
        return None

    def command(self, task: Task) -> Command:
        raise Unavailable(self.reason)


_STRIKE_SPARK = (Kind.KILL, Kind.BOUNCE)
_NOT_SPARK = {
    **dict.fromkeys(Kind, "its sink has no transactions, its source no group"),
    Kind.SESSION: "one query owns a checkpoint, so there is no successor",
}

PEERS: tuple[Peer, ...] = (
    Framework(),
    PythonProgram(
        "confluent-kafka loop",
        "its transactional example with librdkafka's rules for errors; an id for each instance; "
        "no state",
        "textbook",
        package="confluent-kafka",
    ),
    PythonProgram(
        "Quix Streams",
        '`processing_guarantee="exactly-once"`, state',
        "quix_program",
        quix.ENVIRONMENT,
    ),
    PythonProgram(
        "aiokafka loop",
        "its transactional consume-process-produce example; an id for each instance; no state",
        "aiokafka_program",
        LockedEnvironment("aiokafka", "aiokafka", "aiokafka.lock"),
        not_struck={
            Kind.LATE_ABORT: "an error ends the loop without an EndTxn; its next start aborts",
            Kind.LATE_RECORD: "it waits for its records before a transaction ends",
        },
    ),
    PythonProgram(
        "faust-streaming",
        '`processing_guarantee="exactly_once"`, a table in memory',
        "faust_program",
        LockedEnvironment("faust-streaming", "faust-streaming", "faust.lock"),
        ("worker", "--loglevel", "info", "--without-web"),
        not_struck=dict.fromkeys(
            (Kind.LATE_ABORT, Kind.LATE_RECORD),
            "an exception in an agent aborts nothing: the record is left out",
        ),
    ),
    KafkaStreams(),
    PythonProgram(
        "Spark's Kafka sink",
        "Structured Streaming with a checkpoint; no state",
        "spark_program",
        package="pyspark",
        promise="at least once",
        not_struck={k: why for k, why in _NOT_SPARK.items() if k not in _STRIKE_SPARK},
    ),
    Absent("flechtwerk", "it needs Python 3.14, which the other contestants do not have here"),
)
