"""Both implementations on one broker: their inputs, their runs and what they sent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.contestants.streams import PROGRAMS, compile_programs
from benchmarks.contestants.streams_jars import class_path
from eosframework.embedded.jars import find_java
from tests.comparison.flights import encoded
from tests.comparison.rules import Inputs, Output
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import KEEP, read_committed
from tests.support.processes.programs import FRAMEWORK, fork_program
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

OURS = Path(__file__).with_name("ours.py")
THEIRS = Path(__file__).with_name("java")
APPLICATIONS = {
    "windows": ["flights"],
    "unretained": ["few"],
    "pairs": ["departures", "landings"],
    "lookups": ["departures", "rows"],
    "versions": ["departures", "rows"],
    "cogroups": ["departures", "landings"],
    "tables": ["departed", "rows"],
}
"""By application, the input topics that it reads."""

QUIET_SECONDS = 15
"""Of its outputs, after which Kafka Streams sends nothing more: it commits each second."""

PATIENCE_SECONDS = 1800
"""Kafka Streams opens and drops a store on disk for each few hours of stream time."""


class BothSides:
    """The topics and runs of one comparison.

    Args:
        bootstrap_servers: of the broker.
        name: begins the names of all topics and applications.
        directory: for programs, stores and logs.
        inputs: the records of each input topic.
        applications: by application, the input topics that it reads.
        program: the file with this framework's applications.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        name: str,
        directory: Path,
        inputs: Inputs,
        applications: Mapping[str, Sequence[str]] = APPLICATIONS,
        program: Path = OURS,
    ) -> None:
        self._applications = applications
        self._program = program
        self._servers = bootstrap_servers
        self._name = name
        self._directory = directory
        self._inputs = inputs

    def create_topics(self, ours: Sequence[str], theirs: Sequence[str]) -> None:
        """Create the inputs and outputs, each with one partition."""
        names = [f"in.{topic}" for topic in self._inputs]
        names += [*(f"ours.{topic}" for topic in ours), *(f"theirs.{topic}" for topic in theirs)]
        topics = [NewTopic(f"{self._name}.{name}", 1, 1, config=KEEP) for name in names]
        create_topics(AdminClient({"bootstrap.servers": self._servers}), topics)

    def feed(self) -> None:
        """Write all inputs."""
        producer = feeder(self._servers)
        for topic, records in self._inputs.items():
            for key, value, at in records:
                producer.produce(f"{self._name}.in.{topic}", encoded(value), key, timestamp=at)
                producer.poll(0)
            assert producer.flush(120) == 0

    def run_ours(self) -> None:
        """Run each application of ours.py to the end of its input."""
        environment = {"COMPARED_NAME": self._name}
        server = f"kafka.bootstrap_servers={self._servers}"
        settings = [server, f"state.directory={self._directory}", "worker.max_task_idle_seconds=3"]
        chosen = [word for setting in settings for word in ("--set", setting)]
        for application in self._applications:
            topology = f"{self._program}:{application}"
            for command in (["apply"], ["run-worker", "--until-caught-up"]):
                log = self._directory / f"{application}.{command[0]}.log"
                arguments = [command[0], topology, *command[1:], *chosen]
                program = fork_program(FRAMEWORK, arguments, environment=environment, out=log)
                code = program.wait(PATIENCE_SECONDS)
                assert code == 0, f"{command[0]} {application}: exit code {code}:\n{_end(log)}"

    def run_theirs(self, quiet: Sequence[str] = ()) -> None:
        """Run java/Compared.java until each application has committed the end of its input.

        Args:
            quiet: outputs that internal topics feed; they must have grown no more for a while.
        """
        classes = self._directory / "classes"
        classes.mkdir()
        compile_programs(classes, PROGRAMS / "Json.java", *THEIRS.glob("*.java"))
        log = self._directory / "theirs.log"
        arguments = [
            *(str(find_java()), "-Xmx1g", "-XX:-UsePerfData", f"-Djava.io.tmpdir={classes}"),
            *("-cp", f"{classes}:{class_path()}", "Compared"),
            *(self._servers, self._name, str(self._directory / "streams"), *self._applications),
        ]
        with log.open("wb") as out:
            program = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT)

        def is_done() -> bool:
            code = program.poll()
            assert code is None, f"Kafka Streams ended with {code}:\n{_end(log)}"
            return all(self._is_read(application) for application in self._applications)

        try:
            wait_until(is_done, "Kafka Streams to read all inputs", PATIENCE_SECONDS)
            if quiet:
                self._wait_for_quiet(quiet)
            program.terminate()
            program.wait(60)
        finally:
            program.kill()
            program.wait()
        # What Kafka Streams sends after a failure of its own is not what is compared.
        assert "ERROR" not in _end(log), _end(log)

    def _wait_for_quiet(self, outputs: Sequence[str]) -> None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "ends"})
        partitions = [TopicPartition(f"{self._name}.theirs.{topic}", 0) for topic in outputs]
        seen, since = list[int](), monotonic()

        def is_quiet() -> bool:
            nonlocal seen, since
            ends = [consumer.get_watermark_offsets(one, timeout=20)[1] for one in partitions]
            if ends != seen:
                seen, since = ends, monotonic()
            return monotonic() - since > QUIET_SECONDS

        try:
            wait_until(is_quiet, "Kafka Streams to send all results", PATIENCE_SECONDS)
        finally:
            consumer.close()

    def _is_read(self, application: str) -> bool:
        group = f"{self._name}.theirs.{application}"
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": group})
        ends = {
            f"{self._name}.in.{t}": len(self._inputs[t]) for t in self._applications[application]
        }
        try:
            committed = consumer.committed([TopicPartition(topic, 0) for topic in ends], timeout=20)
        except KafkaException:
            return False  # The group's coordinator is being elected.
        finally:
            consumer.close()
        return all(position.offset == ends[position.topic] for position in committed)

    def ours(self, output: str) -> list[Output]:
        """Return what this framework sent to an output."""
        return self._read(f"{self._name}.ours.{output}")

    def theirs(self, output: str) -> list[Output]:
        """Return what Kafka Streams sent to an output."""
        return self._read(f"{self._name}.theirs.{output}")

    def _read(self, topic: str) -> list[Output]:
        return [
            Output(
                (message.key() or b"").decode(),
                None if (value := message.value()) is None else json.loads(value),
                message.timestamp()[1],
            )
            for message in read_committed(self._servers, topic)
        ]


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]
