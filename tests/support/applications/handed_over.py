"""An application whose first half is history: processed, and then made to look like a backfill's.

A worker has filled outputs and changelogs; its group, and that the registry knows of it, are
removed, and a complete job is registered in their place. What a cutover has to bring back is then
exactly what a worker would have had. The verifier derives the outputs from the input.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.application.control_topic import ControlTopic
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.spark.job.job_entry import (
    Job,
    OffsetRange,
    TaskProgress,
    ends_key,
    task_key,
    to_entries,
)
from eosframework.spark.job.stages import fingerprint
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications.pipeline import Pipeline, WorkerProcess, number_in, wait_until
from tests.support.processes.programs import FAULTY, Finished, Program, fork_program
from tests.support.processes.waiting import PATIENCE_SECONDS

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  counted:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {window: {tumbling: 100ms, grace: 800ms}, emit: close}
    to: {topic: NAME.counted}
  totals:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {}
    to: {topic: NAME.totals, value: json}
"""

JOB = "history"
APART = 1000
"""Between the records that close the last windows and those before, in milliseconds."""


class HandedOver(Pipeline):
    """The application, its job, its workers, and what its outputs must say.

    Args:
        topology: YAML with `NAME` where the application's name goes.
        replication_factor: of its topics.
        environment: of all of its commands and workers.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        name: str,
        directory: Path,
        *,
        partitions: int = 1,
        topology: str = TOPOLOGY,
        replication_factor: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=topology,
            outputs={"counted": 1, "totals": 1},
            partitions=partitions,
            replication_factor=replication_factor,
        )
        self.environment = dict(environment or {})
        self.commands: list[Program] = []
        applied = self.command("apply")
        assert applied.exit_code == 0, applied.err

    @property
    def graph(self) -> Graph:
        return resolve(load_app(str(self.topology_file)))

    def command(
        self,
        command: str,
        *arguments: str,
        faults: Sequence[str] = (),
        seconds: float = PATIENCE_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a command on this application to its end."""
        started = self.start_command(command, *arguments, faults=faults, environment=environment)
        return started.finish(seconds)

    def start_command(
        self,
        command: str,
        *arguments: str,
        faults: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        words = [*command.split(), str(self.topology_file), *arguments]
        fault_directory = self.directory / f"faults-{time.monotonic_ns()}"
        fault_directory.mkdir()
        self.fault_directory = fault_directory
        process = fork_program(
            FAULTY,
            words,
            environment={
                "EOS_TEST_FAULTS": ";".join(faults),
                "EOS_TEST_FAULT_DIRECTORY": str(fault_directory),
                "EOS_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers,
                "EOS_WORKER__SESSION_TIMEOUT_SECONDS": "6",
                **self.environment,
                **(environment or {}),
            },
            out=fault_directory / "out",
            err=fault_directory / "err",
        )
        self.commands.append(process)
        return process

    def stop(self) -> None:
        """End every process that this started."""
        super().stop()
        for process in self.commands:
            process.kill()
            process.wait()

    def cutover(self, *arguments: str, **options: Any) -> Finished:
        return self.command("backfill cutover", "--job", JOB, *arguments, **options)

    def work(self, place: str, **options: Any) -> WorkerProcess:
        """Start a worker that keeps its stores at `place`."""
        settings = [
            f"state.directory={self.directory / place}",
            "worker.session_timeout_seconds=6",
        ]
        environment = {**self.environment, **options.pop("environment", {})}
        return self.start_worker(
            instance=place, settings=settings, environment=environment, **options
        )

    def work_early(self, place: str, **options: Any) -> WorkerProcess:
        """Start a worker that looked at the registry before the job was there."""
        environment = {"EOS_TEST_BEFORE_JOBS": "1", **options.pop("environment", {})}
        return self.work(place, environment=environment, **options)

    def make_history(self, count: int) -> None:
        """Process the first records, and register that a job has."""
        self.feed(count)
        worker = self.work("history")
        wait_until(lambda: self.totals() == count, f"{count} totals\n{worker.log[-2000:]}")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-4000:]
        self.forget_live()

    def forget_live(self) -> None:
        """Put a complete job in place of what a worker leaves about itself."""
        settings = KafkaSettings(bootstrap_servers=self.bootstrap_servers)
        admin = ClusterAdmin(settings)
        registry = ControlTopic(self.name, settings, admin)
        registered = registry.refresh().entries
        registry.write(self.job_entries(admin))
        registry.write({key: None for key in registered if key.startswith("committed/")})
        plain = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        plain.delete_consumer_groups([self.name])[self.name].result(60)

    def job_entries(self, admin: ClusterAdmin) -> dict[str, Any]:
        graph = self.graph
        own = {repartition.topic for repartition in graph.repartitions}
        facts = admin.describe_topics({self.source, *own})
        ends = {topic: self._bounds(topic) for topic in facts}
        now = round(time.time() * 1000)
        job = Job(
            application=self.name,
            name=JOB,
            fingerprint=fingerprint(graph),
            created_at=now,
            ranges={self.source: tuple(OffsetRange(first=0, end=e) for e in ends[self.source])},
            own_starts=dict.fromkeys(own, (0,) * self.partitions),
            topic_ids={topic: found.topic_id for topic, found in facts.items()},
        )
        entries = to_entries(job) | {ends_key(JOB, topic): ends[topic] for topic in own}
        for part in graph.sub_topologies:
            [topic] = [source.topic for source in part.sources]
            for number in range(self.partitions):
                progress = TaskProgress(
                    positions={f"{topic}/{number}": ends[topic][number]},
                    metadata=self._metadata(topic, number),
                    complete=True,
                    attempt="test",
                    written_at=now,
                )
                entries[task_key(JOB, part.name, number)] = progress.to_entry()
        return entries

    def committed_at(self, topic: str) -> list[int]:
        """The group's committed offset in each partition; what is in doubt does not count."""
        return [position.offset for position in self._committed(topic, "read_uncommitted")]

    def members(self) -> int:
        """How many the group has."""
        plain = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        return len(plain.describe_consumer_groups([self.name])[self.name].result(60).members)

    def totals(self) -> int:
        return len(self.read(f"{self.name}.totals"))

    def finish_live(self) -> None:
        """Feed records that close all windows, and let a worker without stores go through all."""
        self._fed += APART
        self.feed(10)
        expected = len(self.read(self.source))
        worker = self.work("live")
        wait_until(lambda: self.totals() >= expected, f"{expected} totals\n{worker.log[-2000:]}")
        wait_until(lambda: len(self.windows()) >= len(self.expected_windows()), "all windows")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-4000:]

    def windows(self) -> list[tuple[str, int, int]]:
        """Key, start and count of each window that went out."""
        found: list[tuple[str, int, int]] = []
        for message in self.read(f"{self.name}.counted"):
            result = json.loads(message.value() or b"")
            found.append(((message.key() or b"").decode(), result["start"], result["value"]))
        return found

    def expected_windows(self) -> list[tuple[str, int, int]]:
        """Those of the input, without the last ones, which nothing closes."""
        counts: Counter[tuple[str, int]] = Counter()
        for message in self.read(self.source):
            at = message.timestamp()[1]
            counts[str(number_in(message) % 10), at - at % 100] += 1
        last = max(start for _, start in counts)
        return sorted((key, start, n) for (key, start), n in counts.items() if start < last)

    def findings(self) -> list[str]:
        """What is wrong in the outputs."""
        expected = Counter(str(number_in(m) % 10) for m in self.read(self.source))
        found: list[str] = []
        seen: dict[str, list[int]] = {}
        for message in self.read(f"{self.name}.totals"):
            key = (message.key() or b"").decode()
            seen.setdefault(key, []).append(json.loads(message.value() or b""))
        for key, count in expected.items():
            if seen.get(key) != list(range(1, count + 1)):
                found.append(f"totals of {key} are not 1 to {count}: {seen.get(key, [])[-20:]}")
        windows, wanted = sorted(self.windows()), self.expected_windows()
        if windows != wanted:
            found.append(
                f"windows too many: {sorted((Counter(windows) - Counter(wanted)).elements())[:5]}, "
                f"missing: {sorted((Counter(wanted) - Counter(windows)).elements())[:5]}"
            )
        return found

    def _metadata(self, topic: str, number: int) -> str:
        return self._committed(topic)[number].metadata or ""

    def _committed(self, topic: str, isolation: str = "read_committed") -> list[TopicPartition]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": self.name,
                "isolation.level": isolation,
            }
        )
        try:
            return consumer.committed(
                [TopicPartition(topic, n) for n in range(self.partitions)], timeout=60
            )
        finally:
            consumer.close()

    def _bounds(self, topic: str) -> tuple[int, ...]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "watcher",
                "isolation.level": "read_committed",
            }
        )
        try:
            return tuple(
                consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=60)[1]
                for n in range(self.partitions)
            )
        finally:
            consumer.close()
