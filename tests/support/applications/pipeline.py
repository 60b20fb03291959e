"""A topology with two outputs for each input, its workers, and an independent verifier.

The verifier shares no code with the framework: it reads the input and the outputs with a plain
confluent_kafka consumer and derives what must be there from the numbers in the input.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.records import partitions_of
from tests.support.applications.feeding import Feeder, feeder
from tests.support.processes.commands import here
from tests.support.processes.programs import (
    FAULTY,
    Finished,
    Program,
    RunningProgram,
    fork_program,
    framework_command,
    in_the_foreground,
    start_command,
)
from tests.support.processes.waiting import PATIENCE_SECONDS, wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics
from tests.support.verifiers.messages import position_of

COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)

KEEP = {"retention.ms": "-1"}
"""Event times lie in the past, and a broker deletes by them."""

MARKER_SECONDS = 0.5
"""How long a reader waits for the end of an open transaction."""

SHOWN_CHARACTERS = 6000
"""Of each log, under a test that failed."""

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.doubled, value: json}]
  tripled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:triple"}]
    to: [{topic: NAME.tripled, value: json}]
"""

DOUBLED_AND_TRIPLED = {"doubled": 2, "tripled": 3}


@dataclass
class WorkerProcess(RunningProgram):
    """A real `eosframework run-worker` in a process of its own."""

    fault_directory: Path

    def wait_until_displaced(self) -> None:
        """Wait until it hears that another worker has what it had, or ends."""
        wait_until(
            lambda: (
                bool(self.events("task_fenced") or self.events("partitions_lost"))
                or self.process.poll() is not None
            ),
            "the zombie noticing",
        )

    def ids(self) -> list[str]:
        """The transactional.ids that it writes or wrote under, sorted."""
        return sorted({str(event["transactional_id"]) for event in self.events("task_assigned")})

    def fired(self, point: str) -> bool:
        return (self.fault_directory / f"{point}.fired").exists()

    def wait_for_fault(self, point: str, seconds: float = PATIENCE_SECONDS) -> None:
        self.wait_for(lambda: self.fired(point), f"fault {point}", seconds)

    def finish(self, seconds: float = PATIENCE_SECONDS) -> Finished:
        """Wait for the end of a command and return what it printed."""
        assert isinstance(self.process, Program), "started from a terminal"
        return self.process.finish(seconds)

    def release(self) -> None:
        """Let whatever a fault or function holds go on."""
        (self.fault_directory / "release").touch()


@dataclass
class Verdict:
    """What an independent reader found."""

    lost: list[tuple[str, int]] = field(default_factory=list)
    duplicated: list[tuple[str, int]] = field(default_factory=list)
    reordered: list[tuple[str, int]] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)
    unexpected: list[tuple[str, int]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self == Verdict()


COMPRESSED = "kafka.properties.compression.type=lz4"


class Pipeline:
    """One application on one broker, with topics of its own.

    Args:
        topology: YAML with `NAME` where the application's name goes.
        small_outputs: the outputs take batches of at most 10,000 bytes. Workers compress, so that
            it is not known before a commit which output is refused.
        replication_factor: of every topic.
        outputs: by name, what its records' numbers are a multiple of.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        name: str,
        directory: Path,
        *,
        topology: str = TOPOLOGY,
        partitions: int = 4,
        small_outputs: bool = False,
        replication_factor: int = 1,
        outputs: Mapping[str, int] = DOUBLED_AND_TRIPLED,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.name = name
        self.directory = directory
        self.source = f"{name}.in"
        self._own_settings = [COMPRESSED] if small_outputs else []
        self.outputs = {f"{name}.{output}": factor for output, factor in outputs.items()}
        self.workers: list[WorkerProcess] = []
        self._fed = 0
        self._producer: Feeder | None = None
        self._group: Consumer | None = None
        self.partitions = partitions
        directory.mkdir(parents=True, exist_ok=True)
        self.topology_file = directory / "topology.yaml"
        self.topology_file.write_text(topology.replace("NAME", name))
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        wanted = [NewTopic(self.source, partitions, replication_factor, config=KEEP)]
        wanted += [
            NewTopic(
                topic,
                partitions,
                replication_factor,
                config={**KEEP, **({"max.message.bytes": "10000"} if small_outputs else {})},
            )
            for topic in self.outputs
        ]
        wanted.append(NewTopic(f"{name}.dead", 1, replication_factor, config=KEEP))
        create_topics(admin, wanted)

    @property
    def fed(self) -> int:
        """How many numbers are in the input."""
        return self._fed

    def feed(self, count: int) -> None:
        """Append the next `count` numbers to the input, spread over its partitions."""
        producer = self._producer = self._producer or self._new_producer()
        for n in range(self._fed, self._fed + count):
            producer.produce(
                self.source,
                json.dumps({"n": n}).encode(),
                str(n).encode(),
                n % self.partitions,
                timestamp=1_700_000_000_000 + n,
            )
            if n % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0
        self._fed += count

    def feed_until_fault(self, worker: WorkerProcess, point: str) -> None:
        """Append a number to each partition, again and again, until a fault has fired.

        So each transaction has records, however many partitions share it.
        """

        def fired() -> bool:
            if worker.fired(point):
                return True
            self.feed(self.partitions)
            return False

        worker.wait_for(fired, f"fault {point}")

    def _new_producer(self) -> Feeder:
        properties = {
            "queue.buffering.max.messages": 1_000_000,
            "socket.timeout.ms": 5000,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 2000,
        }
        return feeder(self.bootstrap_servers, **properties)

    def apply(self) -> None:
        """Create what the application needs on its cluster, however busy the machine is."""
        server = f"kafka.bootstrap_servers={self.bootstrap_servers}"
        patience = f"kafka.request_timeout_seconds={PATIENCE_SECONDS}"
        done = here("apply", str(self.topology_file), "--set", server, "--set", patience)
        assert done.exit_code == 0, done.err

    def start_worker(
        self,
        *arguments: str,
        instance: str | None = None,
        faults: Sequence[str] = (),
        settings: Sequence[str] = (),
        until_caught_up: bool = False,
        environment: Mapping[str, str] | None = None,
        own_group: bool = False,
    ) -> WorkerProcess:
        """Start `run-worker` on this pipeline's topology; logs are JSON in a file."""
        number = len(self.workers)
        fault_directory = self.directory / f"faults{number}"
        fault_directory.mkdir()
        log_file = self.directory / f"worker{number}.log"
        command = ["run-worker", str(self.topology_file), *arguments]
        chosen = [f"kafka.bootstrap_servers={self.bootstrap_servers}"]
        chosen += [*self._own_settings, *settings]
        if instance is not None:
            chosen.append(f"worker.instance={self.name}.{instance}")
        for setting in chosen:
            command += ["--set", setting]
        if until_caught_up:
            command.append("--until-caught-up")
        faulty = {
            "EOS_TEST_FAULTS": ";".join(faults),
            "EOS_TEST_FAULT_DIRECTORY": str(fault_directory),
        }
        own = faulty | dict(environment or {})
        if own_group:
            line = framework_command(*command, module=FAULTY)
            process = start_command(line, out=log_file, environment=own, prepare=in_the_foreground)
        else:
            process = fork_program(FAULTY, command, environment=own, out=log_file)
        worker = WorkerProcess(process, log_file, fault_directory)
        self.workers.append(worker)
        return worker

    def finish(
        self,
        *,
        instance: str | None = None,
        settings: Sequence[str] = (),
        seconds: float = 2 * PATIENCE_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> WorkerProcess:
        """Let a healthy worker read the input to its end, and see it end well."""
        worker = self.start_worker(
            instance=instance, settings=settings, until_caught_up=True, environment=environment
        )
        code = worker.wait(seconds)
        assert code == 0, f"exit code {code}:\n{worker.log[-4000:]}"
        return worker

    def finish_all(
        self, *, instance: str | None = None, settings: Sequence[str] = ()
    ) -> list[WorkerProcess]:
        """Finish, and send what waits for stream time: in a second run, which finds no input."""
        return [self.finish(instance=instance, settings=settings) for _ in range(2)]

    def committed(self) -> int:
        """How many input offsets the group has committed, over all partitions."""
        consumer = self._group = self._group or self._new_group()
        wanted = [TopicPartition(self.source, p) for p in range(self.partitions)]
        answers: list[TopicPartition] = []

        def answered() -> bool:
            try:
                answers[:] = consumer.committed(wanted, timeout=20)
            except KafkaException as error:
                if error.args[0].code() not in COORDINATOR_MOVES:
                    raise
                return False
            return True

        wait_until(answered, "an answer of the group's coordinator")
        return sum(max(position.offset, 0) for position in answers)

    def _new_group(self) -> Consumer:
        """Return a client that asks for the group's offsets and is no member.

        Tests ask every quarter of a second: a client for each question costs a broker 15 ms.
        """
        properties = {"reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 2000}
        servers = {"bootstrap.servers": self.bootstrap_servers, "group.id": self.name}
        return Consumer({**servers, **properties})

    def unread(self, *topics: str) -> int:
        """How many offsets of some topics the group has not committed, with those of markers."""
        admin = ClusterAdmin(KafkaSettings(bootstrap_servers=self.bootstrap_servers))
        found = admin.describe_topics(topics)
        partitions = partitions_of({topic: facts.partitions for topic, facts in found.items()})
        # Positions are read before ends: in the other order, results in between would not count.
        committed = admin.committed(self.name, partitions)
        ends = admin.high_watermarks(partitions)
        return sum(ends[p.topic_partition] - (p.offset or 0) for p in committed)

    def nothing_is_open(self) -> bool:
        """Whether every output partition's last stable offset is its end."""
        return self._ends("read_committed") == self._ends("read_uncommitted")

    def _ends(self, isolation: str) -> list[int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "watcher",
                "isolation.level": isolation,
            }
        )
        try:
            return [
                consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60)[1]
                for topic in self.outputs
                for p in range(self.partitions)
            ]
        finally:
            consumer.close()

    def read(self, topic: str) -> list[Message]:
        """Read a topic read_committed to its end."""
        return read_committed(self.bootstrap_servers, topic)

    def verify(self, outputs: Mapping[str, list[Message]] | None = None) -> Verdict:
        """Derive the outputs from the input and compare; see `Verdict`.

        Args:
            outputs: what a reader got of each output topic; None: they are read now.
        """
        numbers = [number_in(message) for message in self.read(self.source)]
        verdict = Verdict()
        seen: dict[str, Counter[int]] = {}
        for topic, factor in self.outputs.items():
            records = self.read(topic) if outputs is None else outputs[topic]
            found = Counter(number_in(message) for message in records)
            seen[topic] = found
            expected = Counter(n * factor for n in numbers)
            verdict.lost += [(topic, n) for n in sorted((expected - found).keys())]
            extra = found - expected
            verdict.duplicated += [(topic, n) for n in sorted(extra) if n in expected]
            verdict.unexpected += [(topic, n) for n in sorted(extra) if n not in expected]
            verdict.reordered += [(topic, n) for n in _out_of_order(records, self.partitions)]
        verdict.torn = [
            n
            for n in numbers
            if len({seen[topic][n * factor] > 0 for topic, factor in self.outputs.items()}) > 1
        ]
        return verdict

    def removed(self, topic: str) -> int:
        """How many offsets the topic's partitions no longer have, together."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": self.name})
        try:
            partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            return sum(
                consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=60)[0]
                for number in partitions
            )
        finally:
            consumer.close()

    def stop(self) -> None:
        """End every process that this pipeline started, and its clients; show their last words.

        pytest prints them with a test that failed: without them, nobody knows why a worker did not
        do what the test waited for.
        """
        self._producer = None
        if self._group is not None:
            self._group.close()
            self._group = None
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
            print(f"{self.fed} numbers fed; end of {worker.log_file.name}:")
            print(worker.log[-SHOWN_CHARACTERS:])


def number_in(message: Message) -> int:
    """The number that a record of these topologies carries."""
    return json.loads(message.value() or b"")["n"]


def _out_of_order(records: list[Message], partitions: int) -> list[int]:
    """Numbers that come before an earlier number of the same input and output partition."""
    last: dict[tuple[int, int], int] = {}
    wrong = []
    for message in records:
        number = int(message.key() or b"-1")
        _, partition, _ = position_of(message)
        lane = (partition, number % partitions)
        if number < last.get(lane, -1):
            wrong.append(number)
        last[lane] = number
    return wrong


def read_committed(bootstrap_servers: str, topic: str, first: int = 0) -> list[Message]:
    """Read every committed record of a topic from an offset on, in the order of each partition.

    An open transaction at the end of a partition has `MARKER_SECONDS` to end: a broker answers a
    commit before it writes the markers.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,  # an end is one after a fetch that found nothing
        }
    )
    try:
        metadata = consumer.list_topics(topic, 60).topics[topic]
        partitions = [TopicPartition(topic, p, first) for p in metadata.partitions]
        consumer.assign(partitions)
        records: list[Message] = []
        ends = dict.fromkeys((p.partition for p in partitions), float("inf"))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (now := time.monotonic()) < max(ends.values(), default=0):
            assert now < deadline, f"{topic}: a partition of {[*ends]} has no end"
            for message in consumer.consume(1000, 0.02):
                error = message.error()
                assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                if error is None:
                    records.append(message)
                    continue
                place = TopicPartition(topic, message.partition() or 0)
                _, high_watermark = consumer.get_watermark_offsets(place, cached=True)
                is_stable = (message.offset() or 0) >= high_watermark
                ends[place.partition] = 0 if is_stable else now + MARKER_SECONDS
        return records
    finally:
        consumer.close()
