"""What an attempt works with, made on an executor from what the driver sent."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from eosframework.application.output_limits import output_limits
from eosframework.backfill.executor.marking import MarkedOutput
from eosframework.backfill.executor.task_spec import Work
from eosframework.backfill.job.job_entry import TaskProgress
from eosframework.backfill.job.job_log import JobLog
from eosframework.backfill.spark.pickling import unpack
from eosframework.config import Settings
from eosframework.errors import ConfigurationError, RunError, StateUnwritable
from eosframework.kafka.admin.auto_creation import ChosenTopics
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import hold_nothing
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.kafka.worker_clients import producers
from eosframework.process.private_files import DIRECTORY_MODE
from eosframework.processing.codegen.compile_context import CompileContext
from eosframework.processing.codegen.compiler import CompiledPart, compile_part
from eosframework.processing.ports import Output, TransactionalOutput, TransactionalOutputs
from eosframework.processing.stores.local_state import LocalState
from eosframework.records import TopicPartition
from eosframework.runtime.worker_state import local_state
from eosframework.topology.graph.graph import Graph, Lookup, SubTopology
from eosframework.topology.graph.walk import nodes_of
from eosframework.txnid import TransactionalId

GARBAGE_THRESHOLD = 50_000
"""A batch makes thousands of tuples, all freed by their reference counts; walking them at every
700th takes 3 to 7% of the time."""


class ProgressLog(Protocol):
    """The progress of tasks; see `JobLog`, whose methods raise ClusterUnreachable."""

    def read_task(self, sub_topology: str, partition: int) -> TaskProgress | None:
        """Return how far a task is, once all is decided."""
        ...

    def watch_task(self, sub_topology: str, partition: int) -> TaskProgress | None:
        """Return how far a task is, as far as that is decided."""
        ...

    def written_end(self) -> int:
        """Return the offset behind everything that is written, decided or not."""
        ...

    def newest_of_task(
        self, sub_topology: str, partition: int, since: int = 0
    ) -> tuple[int, TaskProgress] | None:
        """Return what was last written from an offset on, whatever becomes of it."""
        ...

    def progress_output(self, sub_topology: str, partition: int, progress: TaskProgress) -> Output:
        """Return what to produce so that progress counts."""
        ...


@dataclass(frozen=True, slots=True)
class Equipment:
    """What one attempt works with.

    Args:
        identity: of the task, the same for every attempt.
        starts: of the task's source partitions.
        ends: likewise, where they are offsets.
        own_topics: of those that the task may write to: records there tell who wrote them.
        holds_records: tells of ranges whether there is any record in them.
        state: None: the sub-topology keeps nothing.
        run: which the attempt belongs to; see `Work`.
    """

    identity: TransactionalId
    compiled: CompiledPart
    settings: Settings
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    own_topics: frozenset[str]
    outputs: TransactionalOutputs
    log: ProgressLog
    holds_records: Callable[[Mapping[TopicPartition, tuple[int, int]]], bool]
    state: LocalState | None = None
    run: str = ""

    @property
    def partition(self) -> int:
        """Number of the task."""
        return self.identity.partition

    @property
    def sub_topology(self) -> str:
        """Name of the task's part of the topology."""
        return self.compiled.part.name

    def marked(self, output: TransactionalOutput) -> TransactionalOutput:
        """Return an output whose records to own topics tell who wrote them."""
        if not self.own_topics:
            return output
        return MarkedOutput(output, self.own_topics, f"{self.sub_topology}/{self.partition}")


def refuse_receipts(settings: Settings) -> None:
    """Raise if outputs are to have receipts: those count offsets, and a backfill counts rows.

    Raises:
        ConfigurationError: says how to go on.
    """
    if settings.worker.receipts:
        raise ConfigurationError(
            "worker.receipts=true cannot be kept by a backfill: a receipt names the offset of its "
            "input record, and rows that Spark reads and merges have none. Backfill with "
            "--set worker.receipts=false; live workers begin their receipts behind it"
        )


@contextmanager
def equipped(work: Work, partition: int) -> Generator[Equipment]:
    """Make what an attempt works with, and give it up after the block.

    Raises:
        ConfigurationError: a setting cannot be kept by a backfill.
        RunError: there is no such task, or no directory for its stores.
    """
    refuse_receipts(work.settings)
    graph = unpack(work.graph)
    part = graph.sub_topology(work.sub_topology)
    topics = {source.topic for source in part.sources}
    own = sorted(p for p in work.starts if p.partition == partition and p.topic in topics)
    if not own:
        raise RunError(
            f"there is no task {partition} of sub-topology {part.name!r} in backfill {work.job!r}: "
            f"it has {work.partitions}, from 0"
        )
    admin, outputs = ClusterAdmin(work.settings.kafka), _outputs(work, graph)
    with _collecting_rarely(), _directory(work.settings) as directory:
        state = _state(graph, part, work, admin, directory)
        try:
            yield Equipment(
                identity=TransactionalId.backfill(
                    graph.application, f"{work.job}.{part.name}", partition
                ),
                compiled=compile_part(
                    part,
                    CompileContext(
                        closed_topics=graph.internal_topics,
                        limits=output_limits(work.settings, work.facts, graph),
                        is_missing=ChosenTopics(work.settings.kafka, admin).is_missing,
                    ),
                ),
                settings=work.settings,
                starts={p: work.starts[p] for p in own},
                ends={p: end for p in own if (end := work.ends.get(p)) is not None},
                own_topics=_written(part, work.own_topics),
                outputs=outputs,
                log=JobLog(work.job, graph.application, work.settings.kafka, admin),
                holds_records=_looks(work.settings, admin),
                state=state,
                run=work.run,
            )
        finally:
            if state is not None:
                state.close()
            outputs.stop()


def _written(part: SubTopology, topics: frozenset[str]) -> frozenset[str]:
    """Return those of some topics that a sub-topology may write to."""
    return topics if part.dynamic_sinks else topics.intersection(part.sink_topics)


def _outputs(work: Work, graph: Graph) -> ProducerPool:
    return producers(work.settings, work.facts.output_limits(graph), sorted(work.facts.topics))


def _state(
    graph: Graph, part: SubTopology, work: Work, admin: ClusterAdmin, directory: Path
) -> LocalState | None:
    """Return the state of one task, in a directory that goes with the attempt."""
    looks_up = any(isinstance(node, Lookup) for node in nodes_of(part))
    tables = graph.global_tables if looks_up else ()
    if not part.stores and not tables:
        return None
    alone = replace(graph, sub_topologies=(part,), global_tables=tables)
    here = {"directory": directory, "standby_copies": 0}
    state = work.settings.state.model_copy(update=here)
    settings = work.settings.model_copy(update={"state": state})
    return local_state(alone, settings, "backfill", work.facts.topics, admin)


@contextmanager
def _directory(settings: Settings) -> Generator[Path]:
    """Make a directory for stores that goes with the attempt; a killed one leaves it to Spark.

    Raises:
        StateUnwritable: it cannot be made.
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


def _looks(
    settings: Settings, admin: ClusterAdmin
) -> Callable[[Mapping[TopicPartition, tuple[int, int]]], bool]:
    return lambda ranges: not hold_nothing(settings.kafka, admin, ranges)


@contextmanager
def _collecting_rarely() -> Generator[None]:
    """Let the garbage collector look once in a while instead of several times in each batch."""
    thresholds = gc.get_threshold()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
