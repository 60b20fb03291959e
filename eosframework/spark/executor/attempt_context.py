"""The dependencies of an attempt, created on an executor from the driver's task spec.

Records that a task writes to internal topics get a header with their writer. Live, the tasks that
write a repartition topic run at the same time, so its order is roughly that of event time. A
backfill's tasks write it one after the other, and the stage that reads it merges by writer.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.application.composition.worker_state import local_state
from eosframework.application.journal import KafkaJournal
from eosframework.application.output_limits import output_limits
from eosframework.application.start_checks import Facts
from eosframework.config import Settings
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import CompiledPart, compile_part
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.task.receipts import row_origin
from eosframework.engine.task.task import Task
from eosframework.errors import RunError, StateUnwritable, TransactionError
from eosframework.kafka.admin.auto_creation import ChosenTopics
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import hold_nothing
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producers
from eosframework.process.directories import DIRECTORY_MODE
from eosframework.records import TopicPartition
from eosframework.spark.job.job_entry import TaskProgress, task_key
from eosframework.spark.session.executors import unpack
from eosframework.topology.graph.graph import Graph, Lookup, SubTopology
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.graph.walk import nodes_of
from eosframework.transactions.ports import (
    Journal,
    Message,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.transactions.session.owned_keys import Claim
from eosframework.transactions.task_attempts import TaskAttempt
from eosframework.txnid import TransactionalId

Run = tuple[TopicPartition, Sequence[Message]]
"""Messages of one partition, in offset order."""


class Chunk:
    """Records in processing order.

    Args:
        most_records: capacity in records.
        most_bytes: capacity in bytes of values.
    """

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._runs: deque[Run] = deque()
        self._records = 0
        self._bytes = 0

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def is_full(self) -> bool:
        """True if it should be committed before more records are added."""
        return self._records >= self._most_records or self._bytes >= self._most_bytes

    def add(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Append messages."""
        self._runs.append((partition, messages))
        self._records += len(messages)
        self._bytes += _bytes_in(messages)

    def records_before(self, positions: Mapping[TopicPartition, int]) -> int:
        """Return the number of records before the given positions."""
        return sum(place_of(messages, positions[p]) for p, messages in self._runs)

    def drop_before(self, positions: Mapping[TopicPartition, int]) -> None:
        """Remove the records before the given positions, which are committed."""
        kept = deque[Run]()
        for partition, messages in self._runs:
            if rest := messages[place_of(messages, positions[partition]) :]:
                kept.append((partition, rest))
        self._runs = kept
        self._records = sum(len(messages) for _, messages in kept)
        self._bytes = sum(_bytes_in(messages) for _, messages in kept)


def place_of(messages: Sequence[Message], position: int) -> int:
    """Return the number of messages before a position."""
    if not messages or messages[-1].offset() < position:
        return len(messages)
    return bisect_left(messages, position, key=lambda message: message.offset())


def _bytes_in(messages: Sequence[Message]) -> int:
    """Return the size of the values."""
    return sum(len(message.value() or b"") for message in messages)


class Counted(NamedTuple):
    """Numbers of late, skipped and dead-lettered records."""

    late: int
    skipped: int
    dead_letters: int


class Counters:
    """The counters of one task.

    Args:
        task: counts all records that it runs, including repeated ones.
        compiled: its sub-topology.
    """

    def __init__(self, task: Task, compiled: CompiledPart) -> None:
        self.first_time: int | None = None
        self._task = task
        self._times_are_known = all(
            source.source.timestamp is None for source in compiled.sources.values()
        )
        self._mark = self._all()

    def saw(self, messages: Sequence[Message]) -> None:
        """Update the earliest event time, if it is the record's timestamp."""
        if self._times_are_known:
            first = min(message.timestamp()[1] for message in messages)
            if self.first_time is None or first < self.first_time:
                self.first_time = first

    def open(self) -> Counted:
        """Return the counts since the last mark."""
        return Counted(*(now - then for now, then in zip(self._all(), self._mark, strict=True)))

    def mark(self) -> None:
        """Restart the counts after a commit or an abort."""
        self._mark = self._all()

    def _all(self) -> Counted:
        failures = self._task.failures
        return Counted(self._task.late_records.count, failures.skipped, failures.dead_letters)


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """The dependencies of one attempt.

    Args:
        identity: of the task, the same for every attempt.
        job: its name.
        starts: first positions of the task's source partitions.
        ends: their end offsets, where known.
        own_topics: internal topics that the task may write to; their records get a writer header.
        internal_topics: all topics that only the application writes.
        holds_records: returns whether ranges contain any record.
        origins: names in receipts of source topics whose rows have no offsets.
        state: None: the sub-topology is stateless.
        run: of the attempt; see `TaskSpec`.
        since: see `TaskSpec`.
    """

    identity: TransactionalId
    job: str
    compiled: CompiledPart
    settings: Settings
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    own_topics: frozenset[str]
    outputs: TransactionalOutputs
    journal: Journal
    holds_records: Callable[[Mapping[TopicPartition, tuple[int, int]]], bool]
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    state: LocalState | None = None
    run: str = ""
    since: int = 0
    internal_topics: frozenset[str] = frozenset()

    @property
    def partition(self) -> int:
        """Number of the task."""
        return self.identity.partition

    @property
    def sub_topology(self) -> str:
        """Name of the task's sub-topology."""
        return self.compiled.part.name

    @property
    def claim(self) -> Claim[TaskProgress]:
        """The task, as its attempts own it."""
        return Claim(
            str(self.identity),
            f"task {self.sub_topology}[{self.partition}] of the backfill",
            task_key(self.job, self.sub_topology, self.partition),
            TaskProgress.from_entry,
            TaskProgress.to_entry,
            lambda progress: progress.attempt,
        )

    def attempt(
        self, number: int, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> TaskAttempt[TaskProgress]:
        """Return an attempt at the task.

        Args:
            number: of the attempt, from 0.
            clock: seconds, monotonic.
            sleep: waits for a number of seconds.
        """
        return TaskAttempt(
            self.outputs,
            self.journal,
            self.settings,
            number,
            logger="eosframework.backfill",
            lost="The task's committed output is unknown: use another job name, and an application "
            "whose topics are empty",
            run=self.run,
            signs_since=self.since,
            clock=clock,
            sleep=sleep,
        )

    def with_writer_header(self, output: TransactionalOutput) -> TransactionalOutput:
        """Return an output that adds a writer header to records of internal topics."""
        if not self.own_topics:
            return output
        return _MarkedOutput(output, self.own_topics, f"{self.sub_topology}/{self.partition}")


@contextmanager
def attempt_context(spec: TaskSpec, partition: int) -> Generator[AttemptContext]:
    """Create the dependencies of an attempt, and close them after the block.

    Raises:
        RunError: the task does not exist, or a directory for its stores cannot be created.
    """
    graph = unpack(spec.graph)
    part = graph.sub_topology(spec.sub_topology)
    topics = {source.topic for source in part.sources}
    own = sorted(p for p in spec.starts if p.partition == partition and p.topic in topics)
    if not own:
        raise RunError(
            f"there is no task {partition} of sub-topology {part.name!r} in backfill {spec.job!r}: "
            f"it has {spec.partitions}, from 0"
        )
    admin, outputs = ClusterAdmin(spec.settings.kafka), _outputs(spec, graph)
    with _directory(spec.settings) as directory:
        state = _state(graph, part, spec, admin, directory)
        try:
            yield AttemptContext(
                identity=TransactionalId.backfill(
                    graph.application, f"{spec.job}.{part.name}", partition
                ),
                job=spec.job,
                compiled=compile_part(
                    part,
                    CompileContext(
                        receipts=spec.settings.worker.receipts,
                        limits=output_limits(spec.settings, spec.facts, graph),
                        is_missing=ChosenTopics(spec.settings.kafka, admin).is_missing,
                        own_topics=graph.repartition_topics,
                        timed_topics=timed_topics(graph),
                        is_sorted=True,
                    ),
                ),
                settings=spec.settings,
                starts={p: spec.starts[p] for p in own},
                ends={p: end for p in own if (end := spec.ends.get(p)) is not None},
                own_topics=_written(part, spec.own_topics),
                internal_topics=graph.internal_topics.union(graph.rows_topics),
                outputs=outputs,
                journal=KafkaJournal(graph.application, spec.settings.kafka, admin),
                holds_records=_record_finder(spec.settings, admin),
                origins={
                    p.topic: row_origin(spec.job, p.topic) for p in own if spec.ends.get(p) is None
                },
                state=state,
                run=spec.run,
                since=spec.since,
            )
        finally:
            if state is not None:
                state.close()
            outputs.stop()


def _written(part: SubTopology, topics: frozenset[str]) -> frozenset[str]:
    """Return the given topics that a sub-topology may write to."""
    return topics if part.dynamic_sinks else topics.intersection(part.sink_topics)


def _outputs(spec: TaskSpec, graph: Graph) -> ProducerPool:
    return producers(spec.settings, spec.facts.output_limits(graph), sorted(spec.facts.topics))


def _state(
    graph: Graph, part: SubTopology, spec: TaskSpec, admin: ClusterAdmin, directory: Path
) -> LocalState | None:
    """Return the state of one task, in a directory removed with the attempt."""
    looks_up = any(isinstance(node, Lookup) for node in nodes_of(part))
    tables = graph.global_tables if looks_up else ()
    if not part.stores and not tables:
        return None
    alone = replace(graph, sub_topologies=(part,), global_tables=tables)
    here = {"directory": directory, "standby_copies": 0}
    state = spec.settings.state.model_copy(update=here)
    settings = spec.settings.model_copy(update={"state": state})
    return local_state(alone, settings, "backfill", spec.facts.topics, admin)


@contextmanager
def _directory(settings: Settings) -> Generator[Path]:
    """Create a directory for stores, removed with the attempt; a killed one leaves it to Spark.

    Raises:
        StateUnwritable: it cannot be created.
    """
    local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    parent = settings.state.directory or (Path(local) if local else None)
    try:
        if parent is not None:
            parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix="eosframework-", dir=parent)
    except OSError as error:
        raise StateUnwritable(
            f"no directory for stores can be made in {parent or tempfile.gettempdir()} "
            f"({error.strerror}); set state.directory to one that executors can write"
        ) from error
    with made as directory:
        yield Path(directory)


def _record_finder(
    settings: Settings, admin: ClusterAdmin
) -> Callable[[Mapping[TopicPartition, tuple[int, int]]], bool]:
    return lambda ranges: not hold_nothing(settings.kafka, admin, ranges)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One stage of a job: a sub-topology over the whole range.

    Args:
        graph: of the application, pickled.
        job: its name.
        partitions: number of tasks.
        starts: first position by source partition of every task.
        ends: end offset by source partition; None or missing: the rows' number determines it,
            counted from 0.
        facts: of the cluster, at the start of the job.
        own_topics: internal topics; their records get `WRITER_HEADER`.
        run: id of the stage in one driver. Its attempts may still be active, whatever number Spark
            gives the next attempt: after a lost shuffle it counts from 0 again.
        since: end of the control topic before the run; later entries are signs of life.
    """

    graph: bytes
    settings: Settings
    job: str
    sub_topology: str
    partitions: int
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int | None]
    facts: Facts
    own_topics: frozenset[str]
    run: str = ""
    since: int = 0


_Headers = Sequence[tuple[str, bytes | None]] | None


class _MarkedOutput:
    """A `TransactionalOutput` that adds a header to records of some topics.

    Args:
        output: the wrapped output.
        topics: the topics.
        writer: value of the header.
    """

    def __init__(self, output: TransactionalOutput, topics: frozenset[str], writer: str) -> None:
        self._output = output
        self._topics = topics
        self._header = WRITER_HEADER, writer.encode()

    @property
    def transactional_id(self) -> str:
        """The wrapped output's transactional id."""
        return self._output.transactional_id

    @property
    def is_suspect(self) -> bool:
        """True if the wrapped output's producer may have a frame in flight."""
        return self._output.is_suspect

    @property
    def produce(self) -> Callable[..., None]:
        """`produce(*output)` of the current producer; changes when it is recycled."""
        produce, topics, own = self._output.produce, self._topics, self._header

        def with_writer_header(
            topic: str,
            value: bytes | None,
            key: bytes | None,
            partition: int,
            callback: Any,
            on_delivery: Any,
            timestamp: int,
            headers: _Headers,
        ) -> None:
            if topic in topics:
                headers = [*headers, own] if headers else [own]
            produce(topic, value, key, partition, callback, on_delivery, timestamp, headers)

        return with_writer_header

    def explain(self, error: Exception) -> TransactionError:
        """Return the meaning of an exception from `produce`."""
        return self._output.explain(error)

    def begin(self) -> None:
        """Begin a transaction."""
        self._output.begin()

    def poll(self, timeout_seconds: float = 0) -> None:
        """Serve delivery reports, so that the producer's queue drains."""
        self._output.poll(timeout_seconds)

    def deliver(self) -> None:
        """Wait until the brokers have acknowledged all records."""
        self._output.deliver()
