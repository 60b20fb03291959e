"""Attempts of backfill tasks in processes of their own, over the records of real topics.

Their rows are what the task's source topics hold, one topic after the other, or what they read
themselves (`of_log`). They arm faults as `faulty_worker` does. With EOS_TEST_ROW_SECONDS each batch
of rows takes as long to come; with EOS_TEST_OWN_IDS attempts share no id.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import orjson

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.application.context import connect
from eosframework.application.internal_topics import task_counts
from eosframework.application.journal import KafkaJournal
from eosframework.application.start_checks import Facts, check_start
from eosframework.config import LogSettings, Settings, load_settings
from eosframework.errors import EosError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.operations.audit import Verdict, audit_application
from eosframework.process.logs import configure_logs
from eosframework.records import TopicPartition, partitions_of
from eosframework.spark.executor.attempt_context import TaskSpec
from eosframework.spark.executor.functions import run_attempt
from eosframework.spark.job.job_entry import (
    Job,
    OffsetRange,
    TaskProgress,
    ends_key,
    settled_job,
    to_entries,
)
from eosframework.spark.session.executors import pack
from eosframework.testing import Fault, arm
from eosframework.testing.stateless_driver import Sent
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from eosframework.txnid import TransactionalId
from tests.support.applications.pipeline import Pipeline, read_committed, wait_until
from tests.support.processes.programs import FORKED
from tests.support.processes.waiting import PATIENCE_SECONDS

JOB = "history"
BATCH_RECORDS = 100

QUICK = ["backfill.commit_interval_seconds=0.3", "backfill.stall_seconds=1"]
"""Settings with which nothing is waited for long."""

Runs = Iterator[tuple[TopicPartition, list[Any]]]


@dataclass
class AttemptProcess:
    """An attempt that runs."""

    process: BaseProcess
    directory: Path

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def fired(self, point: str) -> bool:
        return (self.directory / f"{point}.fired").exists()

    def wait_for_fault(self, point: str) -> None:
        def happened() -> bool:
            assert self.process.is_alive() or self.fired(point), self.said
            return self.fired(point)

        wait_until(happened, f"fault {point}")

    def release(self) -> None:
        """Let what a fault holds go on."""
        (self.directory / "release").touch()

    @property
    def said(self) -> str:
        log = self.directory / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int | None:
        """Wait for its end, and return the exit code."""
        self.process.join(seconds)
        return self.process.exitcode

    def ends_with(self, code: int) -> None:
        """Wait for its end, and check the exit code."""
        assert self.wait() == code, self.said[-4000:]

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
        of_log: bool = False,
        fault: str = "",
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> AttemptProcess:
        """Start an attempt in a process of its own."""
        directory = self.pipeline.directory / f"attempt{len(self.attempts)}"
        directory.mkdir()
        task = self.pipeline.topology_file, sub_topology, partition, attempt, of_log
        arguments = (task, [*self.texts, *settings], directory, fault, dict(environment or {}))
        process = FORKED.Process(target=_in_process, args=arguments)
        process.start()
        self.attempts.append(AttemptProcess(process, directory))
        return self.attempts[-1]

    def run(
        self,
        sub_topology: str,
        partition: int,
        attempt: int = 0,
        *,
        of_log: bool = False,
        batches: int | None = None,
    ) -> TaskProgress:
        """Run an attempt in this process, on all batches of rows or on the first ones."""
        file = self.pipeline.topology_file
        return _run(file, sub_topology, partition, attempt, of_log, self.texts, batches)

    @property
    def settings(self) -> Settings:
        """Those of the attempts."""
        return _settings(self.texts)

    @property
    def journal(self) -> KafkaJournal:
        """What the registry holds of the job."""
        kafka = self.settings.kafka
        return KafkaJournal(self.pipeline.name, kafka, ClusterAdmin(kafka))

    def progress(self, sub_topology: str, partition: int) -> TaskProgress | None:
        """Return what a task has committed."""
        state = settled_job(self.journal, JOB)
        return None if state is None else state.tasks.get((sub_topology, partition))

    def register(self) -> None:
        """Write the job, with all that the topics hold for its range, as a driver does."""
        graph = resolve(load_app(str(self.pipeline.topology_file)))
        admin = ClusterAdmin(self.settings.kafka)
        own = {repartition.topic for repartition in graph.repartitions}
        facts = admin.describe_topics(graph.source_topics)
        bounds = admin.log_bounds(partitions_of({t: it.partitions for t, it in facts.items()}))
        by_topic = {
            topic: [bounds[TopicPartition(topic, n)] for n in range(it.partitions)]
            for topic, it in facts.items()
        }
        job = Job(
            application=self.pipeline.name,
            name=JOB,
            fingerprint={},
            receipts=self.settings.worker.receipts,
            created_at=0,
            ranges={
                topic: tuple(OffsetRange(first=first, end=end) for first, end in found)
                for topic, found in by_topic.items()
                if topic not in own
            },
            own_starts={topic: (0,) * len(by_topic[topic]) for topic in own},
        )
        ends = {ends_key(JOB, topic): [end for _, end in by_topic[topic]] for topic in own}
        self.journal.write({**to_entries(job), **ends})

    def audit(self) -> Verdict:
        """Audit the application; see `register`."""
        graph = resolve(load_app(str(self.pipeline.topology_file)))
        return audit_application(graph, self.settings.kafka)

    def stop(self) -> None:
        """End what still runs."""
        for attempt in self.attempts:
            if attempt.process.is_alive():
                attempt.process.kill()
            attempt.process.join()


def _settings(texts: Sequence[str]) -> Settings:
    return load_settings(None, list(texts))


def _run(
    topology: Path,
    sub_topology: str,
    partition: int,
    attempt: int,
    of_log: bool,
    texts: Sequence[str],
    batches: int | None = None,
) -> TaskProgress:
    settings = _settings(texts)
    graph = resolve(load_app(str(topology)))
    work = _work(graph, settings, sub_topology)
    rows = islice(_runs(work, partition), batches)
    return run_attempt(work, partition, attempt, None if of_log else lambda _: rows)


def _work(graph: Graph, settings: Settings, sub_topology: str) -> TaskSpec:
    admin = ClusterAdmin(settings.kafka)
    facts: Facts = check_start(connect(graph, settings))
    own = frozenset(repartition.topic for repartition in graph.repartitions)
    part = next(part for part in graph.sub_topologies if part.name == sub_topology)
    count = task_counts(graph, facts.partitions)[sub_topology]
    partitions = [TopicPartition(s.topic, n) for s in part.sources for n in range(count)]
    bounds = admin.log_bounds(partitions)
    return TaskSpec(
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


def _runs(work: TaskSpec, partition: int) -> Runs:
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
            time.sleep(float(os.environ.get("EOS_TEST_ROW_SECONDS", "0")))
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


def _with_ids_of_their_own(attempt: int) -> None:
    """Make attempts that do not share an id, as if it had the attempt's number in it."""

    def backfill(application: str, job: str, partition: int) -> TransactionalId:
        return TransactionalId(application, f"backfill.{job}.{attempt}", partition)

    TransactionalId.backfill = backfill


def _in_process(
    task: tuple[Path, str, int, int, bool],
    texts: Sequence[str],
    directory: Path,
    fault: str,
    environment: Mapping[str, str],
) -> None:
    with (directory / "log").open("wb") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
        os.dup2(log.fileno(), sys.stdout.fileno())
    # A killed attempt leaves its stores there, for Spark to remove.
    os.environ.update(environment, SPARK_LOCAL_DIRS=str(directory))
    configure_logs(LogSettings())
    arm([Fault.parse(fault)] if fault else [], directory)
    if "EOS_TEST_OWN_IDS" in environment:
        _with_ids_of_their_own(task[3])
    try:
        done = _run(*task, texts)
    except EosError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    (directory / "result").write_bytes(orjson.dumps(done.to_entry()))
