"""Attempts of backfill tasks in processes of their own, over the records of real topics.

    python -m tests.support.backfilled TOPOLOGY SUB_TOPOLOGY PARTITION ATTEMPT SETTING...

runs one attempt on what the task's source topics hold, in the order of one topic after the other,
with faults as `faulty_worker` has them. It prints the progress as JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from eosframework.backfill.attempt import run_attempt
from eosframework.backfill.job import WRITER_HEADER, TaskProgress
from eosframework.backfill.log import JobLog
from eosframework.backfill.packing import pack
from eosframework.backfill.work import Work
from eosframework.config import Settings, load_settings
from eosframework.kafka.admin import ClusterAdmin
from eosframework.kafka.guards import Facts, check_start
from eosframework.kafka.own_topics import task_counts
from eosframework.kafka.registry import Registry
from eosframework.records import TopicPartition
from eosframework.testing import Fault, arm
from eosframework.testing.driver import Sent
from eosframework.topology.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve import resolve
from tests.support.pipeline import REPOSITORY, Pipeline, read_committed, wait_until

JOB = "history"
BATCH_RECORDS = 1000

QUICK = ["backfill.commit_interval_seconds=0.3", "backfill.stall_seconds=1"]
"""Settings with which nothing is waited for long."""

Runs = Iterator[tuple[TopicPartition, list[Any]]]


@dataclass
class AttemptProcess:
    """An attempt that runs."""

    process: subprocess.Popen[bytes]
    directory: Path

    def fired(self, point: str) -> bool:
        return (self.directory / f"{point}.fired").exists()

    def wait_for_fault(self, point: str) -> None:
        def happened() -> bool:
            assert self.process.poll() is None or self.fired(point), self.said
            return self.fired(point)

        wait_until(happened, f"fault {point}")

    @property
    def said(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def ends_with(self, code: int, seconds: float = 90) -> None:
        """Wait for its end, and check the exit code."""
        assert self.process.wait(seconds) == code, self.said[-4000:]

    def progress(self) -> TaskProgress:
        """What it returned."""
        self.ends_with(0)
        return TaskProgress.from_entry(orjson.loads((self.directory / "result").read_bytes()))


class Backfill:
    """The tasks of a job over what a pipeline's topics hold.

    Args:
        pipeline: with its topology and topics.
        settings: of the attempts.
    """

    def __init__(self, pipeline: Pipeline, settings: Sequence[str] = QUICK) -> None:
        self.pipeline = pipeline
        self.attempts: list[AttemptProcess] = []
        server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
        self.texts = [server, *settings]

    def start(
        self,
        sub_topology: str,
        partition: int,
        attempt: int,
        *,
        fault: str = "",
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> AttemptProcess:
        """Start an attempt in a process of its own."""
        directory = self.pipeline.directory / f"attempt{len(self.attempts)}"
        directory.mkdir()
        task = [str(self.pipeline.topology_file), sub_topology, str(partition), str(attempt)]
        with (directory / "log").open("wb") as log, (directory / "result").open("wb") as result:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.backfilled", *task, *self.texts, *settings],
                cwd=REPOSITORY,
                stdout=result,
                stderr=log,
                env={
                    **os.environ,
                    "EOS_TEST_FAULTS": fault,
                    "EOS_TEST_FAULT_DIRECTORY": str(directory),
                    **(environment or {}),
                },
            )
        self.attempts.append(AttemptProcess(process, directory))
        return self.attempts[-1]

    def run(
        self, sub_topology: str, partition: int, attempt: int = 0, *, settings: Sequence[str] = ()
    ) -> TaskProgress:
        """Run an attempt in this process."""
        return _run(
            self.pipeline.topology_file, sub_topology, partition, attempt, [*self.texts, *settings]
        )

    def progress(self, sub_topology: str, partition: int) -> TaskProgress | None:
        """What is committed of a task."""
        settings = _settings(self.texts)
        log = JobLog(JOB, self.pipeline.name, settings.kafka, ClusterAdmin(settings.kafka))
        return log.read_task(sub_topology, partition)

    def stop(self) -> None:
        """End what still runs."""
        for attempt in self.attempts:
            if attempt.process.poll() is None:
                attempt.process.kill()
                attempt.process.wait()


def _settings(texts: Sequence[str]) -> Settings:
    return load_settings(None, list(texts))


def _run(
    topology: Path, sub_topology: str, partition: int, attempt: int, texts: Sequence[str]
) -> TaskProgress:
    settings = _settings(texts)
    graph = resolve(load_app(str(topology)))
    work = _work(graph, settings, sub_topology)
    return run_attempt(work, partition, _runs(work, partition), attempt)


def _work(graph: Graph, settings: Settings, sub_topology: str) -> Work:
    admin = ClusterAdmin(settings.kafka)
    facts: Facts = check_start(
        graph, settings, admin, Registry(graph.application, settings.kafka, admin)
    )
    own = frozenset(repartition.topic for repartition in graph.repartitions)
    part = next(part for part in graph.sub_topologies if part.name == sub_topology)
    count = task_counts(graph, facts.partitions)[sub_topology]
    partitions = [TopicPartition(s.topic, n) for s in part.sources for n in range(count)]
    bounds = admin.log_bounds(partitions)
    return Work(
        graph=pack(graph),
        settings=settings,
        job=JOB,
        sub_topology=sub_topology,
        partitions=count,
        starts={p: 0 if p.topic in own else bounds[p][0] for p in partitions},
        ends={p: bounds[p][1] for p in partitions if p.topic not in own},
        facts=facts,
        own_topics=own,
    )


def _runs(work: Work, partition: int) -> Runs:
    """Give a task's rows as an ordering stage would: own topics by time, with ordinals."""
    servers = work.settings.kafka.bootstrap_servers
    for source in sorted(p for p in work.starts if p.partition == partition):
        messages: list[Any] = [
            m for m in read_committed(servers, source.topic) if m.partition() == partition
        ]
        if source.topic in work.own_topics:
            messages.sort(key=lambda message: message.timestamp()[1])
            messages = [_counted(m, number) for number, m in enumerate(messages)]
        for start in range(0, len(messages), BATCH_RECORDS):
            yield source, messages[start : start + BATCH_RECORDS]


def _counted(message: Any, number: int) -> Sent:
    """Return a record as a row: its place for its offset, and without its writer's header."""
    headers = [h for h in message.headers() or () if h[0] != WRITER_HEADER]
    return Sent(
        message.topic(),
        message.value(),
        message.key(),
        message.timestamp()[1],
        number,
        headers or None,
        message.partition(),
    )


def _without_protection() -> None:
    from eosframework.backfill import equipment
    from eosframework.kafka.outputs import KafkaOutputs

    vars(equipment)["KafkaOutputs"] = partial(KafkaOutputs, protection=False)


def _with_an_id_of_its_own(attempt: int) -> None:
    """Make attempts that do not share their id, as ids with the attempt's number would not."""
    from eosframework.txnid import TransactionalId

    make = TransactionalId.backfill
    vars_ = lambda application, job, partition: make(application, f"{job}.{attempt}", partition)  # noqa: E731
    TransactionalId.backfill = staticmethod(vars_)  # pyright: ignore[reportAttributeAccessIssue]


if __name__ == "__main__":
    faults = [text for text in os.environ.get("EOS_TEST_FAULTS", "").split(";") if text]
    arm(map(Fault.parse, faults), Path(os.environ["EOS_TEST_FAULT_DIRECTORY"]))
    topology, name, partition_, attempt_, *texts_ = sys.argv[1:]
    if "EOS_TEST_OWN_ID" in os.environ:
        _with_an_id_of_its_own(int(attempt_))
    done = _run(Path(topology), name, int(partition_), int(attempt_), texts_)
    sys.stdout.buffer.write(orjson.dumps(done.to_entry()))
