"""The plan of a worker, its options, and its counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from eosframework.engine.codegen.compiler import CompiledPart
from eosframework.engine.operators.refused_rows import RefusedRows
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_time import Downstream
from eosframework.records import TopicPartition
from eosframework.topology.graph.timed_topics import TimedTopic
from eosframework.txnid import TransactionalId


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker; see `config.WorkerSettings` for their meaning.

    Args:
        queue_bytes: the most bytes of waiting records; see `FetchControl`.
    """

    commit_interval_seconds: float
    transaction_timeout_seconds: float
    heartbeat_interval_seconds: float
    takeover_deadline_seconds: float
    batch_records: int
    leave_on_stop: bool
    stop_deadline_seconds: float
    max_task_idle_seconds: float = 0.0
    watermark_interval_seconds: float = 0.0
    queue_bytes: int = 128 * 2**20


@dataclass(slots=True)
class WorkerCounts:
    """The counters of a worker since its start, and its backlog.

    Args:
        unknown_outcomes: commits whose outcome had to be read from the offsets.
        database_retries: writes and claims that were retried because a database was unavailable.
        retries: records that failed and were sent to a retry topic.
        late: records that came too late for a window.
        passed_over: records below stream time, because their upstream task counted as idle.
        closed_by_clock: times that the wall clock closed windows of a task.
        held: records that wait for stream time in reorder steps.
        lag: input records that are not processed yet.
        restoring: changelog records that must be read before every task runs.
    """

    records: int = 0
    commits: int = 0
    aborts: int = 0
    recycles: int = 0
    fences: int = 0
    unknown_outcomes: int = 0
    database_retries: int = 0
    skipped: int = 0
    dead_letters: int = 0
    retries: int = 0
    late: int = 0
    passed_over: int = 0
    closed_by_clock: int = 0
    held: int = 0
    lag: int = 0
    restoring: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The compiled sub-topologies of a worker, and the layout of its tasks.

    Args:
        parts: the compiled sub-topologies, by name.
        receipts: outputs get receipts; the parts are compiled for it.
        own_topics: source topics that the application itself writes.
        internal_topics: all topics that only the application writes.
        make_task: creates a task.
        downstream: the timed topics that each sub-topology writes.
        own_id: the id of the producer that all tasks of this worker share; None: each task has the
            producer of its partition.
        refused_rows: rows that a database refused; the parts are compiled with it.
        kept_ms: how long each output keeps records by their event times; others keep them.
        matched: number of topics that each pattern of a source matches.
    """

    application: str
    parts: Mapping[str, CompiledPart]
    identify: Callable[[str, int], TransactionalId] = field(repr=False)
    receipts: bool = False
    own_topics: frozenset[str] = frozenset()
    internal_topics: frozenset[str] = frozenset()
    make_task: Callable[..., Task] = field(default=Task, repr=False)
    downstream: Mapping[str, Sequence[Downstream]] = field(
        default_factory=dict[str, Sequence[Downstream]]
    )
    own_id: TransactionalId | None = None
    kept_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    refused_rows: RefusedRows = field(default_factory=RefusedRows)
    matched: Mapping[str, int] = field(default_factory=dict[str, int])

    def producer_of(self, task: TransactionalId) -> str:
        """Return the transactional.id of the producer that writes for a task."""
        return str(self.own_id or task)

    @property
    def writing(self) -> set[str]:
        """The sub-topologies whose tasks write rows together with their outputs."""
        return {name for name, part in self.parts.items() if part.part.together}

    def deciding(
        self, by_task: Mapping[TransactionalId, Sequence[TopicPartition]]
    ) -> dict[str, list[TopicPartition]]:
        """Return the ids whose transactions a database decides, with the partitions that it keeps.

        Every transaction of an id is decided there if any of its tasks can write rows: otherwise a
        partition would be ahead in Kafka.
        """
        writing, found = self.writing, dict[str, list[TopicPartition]]()
        for task, partitions in by_task.items():
            if writing and (self.own_id is not None or task.sub_topology in writing):
                kept = found.setdefault(self.producer_of(task), [])
                kept += partitions if task.sub_topology in writing else ()
        return found

    def part_of(self, topic: str) -> CompiledPart:
        """Return the sub-topology that reads a source topic."""
        return next(part for part in self.parts.values() if topic in part.sources)

    def sources_of(self, topic: str) -> set[str]:
        """Return the source topics of the sub-topology that writes a timed topic."""
        return {
            source
            for writer, written in self.downstream.items()
            if any(one.topic == topic for one in written)
            for source in self.parts[writer].sources
        }

    def feeding(self, topics: Set[str]) -> set[str]:
        """Return the source topics upstream of `topics`, through internal topics."""
        found: set[str] = set()
        waiting = set(topics) & self.own_topics
        while waiting:
            writers = [p for p in self.parts.values() if waiting.intersection(p.part.sink_topics)]
            sources = {topic for part in writers for topic in part.sources} - found
            found |= sources
            waiting = sources & self.own_topics
        return found

    @property
    def makes_calls(self) -> bool:
        """True if a step calls a coroutine."""
        parts = self.parts.values()
        return any(source.calls for part in parts for source in part.sources.values())

    @property
    def topics(self) -> list[str]:
        """The source topics of all parts, sorted."""
        return sorted(topic for part in self.parts.values() for topic in part.sources)


def downstream_of(
    timed: Mapping[str, TimedTopic], partitions: Mapping[str, int]
) -> dict[str, list[Downstream]]:
    """Return the timed topics that each sub-topology writes.

    Args:
        timed: those of the graph.
        partitions: number of partitions by topic.
    """
    found: dict[str, list[Downstream]] = {}
    for topic in timed.values():
        one = Downstream(topic.topic, partitions.get(topic.topic, 0), topic.hold_ms)
        found.setdefault(topic.writer, []).append(one)
    return found
