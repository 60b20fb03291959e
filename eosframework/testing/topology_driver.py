"""Runs a topology without a broker: several partitions and tasks, virtual time, and crashes."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from eosframework import failpoints
from eosframework.application.internal_topics import changelog_topics, own_topics, task_counts
from eosframework.errors import ConfigurationError
from eosframework.operators.binding import format_of
from eosframework.operators.entries import LAYOUT
from eosframework.operators.expiry import unexpired
from eosframework.processing.codegen.compile_context import CompileContext
from eosframework.processing.codegen.compiler import compile_part
from eosframework.processing.plan import Plan, WorkerOptions
from eosframework.processing.stores.global_tables import GlobalTables
from eosframework.processing.stores.local_state import LocalState
from eosframework.processing.stores.restoration import Restoration
from eosframework.processing.stores.state_ports import StoreIdentity, TaskStores
from eosframework.processing.transaction.overtime import end_idle_watcher
from eosframework.processing.worker import Worker
from eosframework.records import Headers, Record, TopicPartition, WindowResult
from eosframework.state.memory import MemoryState
from eosframework.state.query.layouts import Row, layout_of
from eosframework.testing.decoding import decoded, encoded, keep_schemas_here, sink_serdes
from eosframework.testing.kept_state import KeptState
from eosframework.testing.memory_kafka import (
    MemoryChangelogs,
    MemoryInput,
    MemoryKafka,
    MemoryLedger,
    MemoryOutputs,
)
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Graph, Store
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from eosframework.txnid import TransactionalId

TURNS = 100_000
"""A topology that is not through after so many turns sends records round in a circle."""

OPTIONS = WorkerOptions(
    commit_interval_seconds=0.1,
    transaction_timeout_seconds=30.0,
    heartbeat_interval_seconds=3.0,
    takeover_deadline_seconds=60.0,
    batch_records=100,
    leave_on_stop=True,
    stop_deadline_seconds=20.0,
)


class Crash(BaseException):
    """Ends a worker where it is, as `kill -9` would."""


class TopologyTestDriver:
    """Pipes records through a topology and shows outputs and state; the worker's code runs it.

    It proves what the user's functions and the topology do, not what Kafka does: for that there
    are real brokers.

    Args:
        app: a Topology, a graph, or what the command line takes for APP.
        partitions: of every source topic, or by topic.
        batch_rows: the most rows that batch operators get at once; None: as many as there are.
    """

    def __init__(
        self,
        app: Topology | Graph | str,
        *,
        partitions: int | Mapping[str, int] = 1,
        batch_rows: int | None = None,
    ) -> None:
        self.graph = graph_of(app)
        counts = _source_counts(self.graph, partitions)
        own = own_topics(self.graph, counts)
        sizes = counts | {topic.name: topic.partitions or 1 for topic in own.values()}
        sinks = [name for part in self.graph.sub_topologies for name in part.sink_topics]
        default = max(counts.values(), default=1)
        self.kafka = MemoryKafka({name: default for name in sinks} | sizes)
        self.tasks = task_counts(self.graph, sizes)
        self._serdes = sink_serdes(self.graph)
        self._plan = self._compiled(batch_rows)
        self._read: dict[TopicPartition, int] = {}
        self._state = KeptState()
        self._crash_at: int | None = None
        self._hits = 0
        self._crashed = False
        self._worker = self._new_worker()

    @property
    def now(self) -> float:
        """Seconds that have passed on the driver's clock."""
        return self.kafka.now

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        timestamp: int = 0,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Append a record to a source topic; `run` processes it.

        Args:
            topic: a source topic.
            value: encoded with the source's serde; bytes are taken as they are.
            key: likewise.
            timestamp: in milliseconds since the epoch.
            headers: in order.
            partition: None: by the key.
        """
        tables = {table.topic: table for table in self.graph.global_tables}
        sources = tables | {s.topic: s for p in self.graph.sub_topologies for s in p.sources}
        if topic not in sources:
            raise ConfigurationError(
                f"no source reads topic {topic!r}; there are {', '.join(sorted(sources))}"
            )
        source = sources[topic]
        key_bytes = encoded(key, source.key)
        number = -1 if partition is None else partition
        self.kafka.append(
            (
                topic,
                encoded(value, source.value),
                key_bytes,
                number,
                None,
                None,
                timestamp,
                list(headers) or None,
            )
        )
        if topic in tables:
            self._read_global_tables()

    def run(self) -> None:
        """Process and commit everything that was sent, and what came of it."""
        try:
            self._run()
        finally:
            end_idle_watcher()  # A test that leaves no thread behind is left with none.

    def _run(self) -> None:
        for _ in range(TURNS):
            with self._crashes():
                self._worker.turn()
            if self._is_through():
                return
        raise ConfigurationError(
            f"topology {self.graph.application!r} is not through after {TURNS:,} turns; does it "
            f"read a topic that it writes?"
        )

    def advance(self, by: timedelta) -> None:
        """Let time pass, as far as timers see it, and process what comes of it."""
        until = self.kafka.now + by.total_seconds()
        while self.kafka.now < until:
            before = self.kafka.now
            with self._crashes():
                self._worker.turn()
            if self.kafka.now == before and self._is_through():
                self.kafka.now = until
        self.run()

    def read(self, topic: str) -> list[Record]:
        """Return the committed records of a topic that were not returned before.

        Records of one partition are in its order; the topic's serdes decode them where they are
        known by its name.
        """
        found: list[Record] = []
        for partition in self.kafka.partitions_of(topic):
            log = self.kafka.logs[partition]
            key, value = self._serdes.get(topic, (None, None))
            for message in log.read(self._read.get(partition, 0), log.end):
                found.append(
                    Record(
                        decoded(message.key(), key),
                        decoded(message.value(), value),
                        message.timestamp()[1],
                        message.headers() or (),
                        *partition,
                        message.offset(),
                    )
                )
            self._read[partition] = log.end
        return found

    def state(self, store: str) -> dict[Any, Any]:
        """Return what a store holds, over all tasks: committed values by key.

        Of windows the keys are (key, start, end), of `deduplicate` (key, timestamp).

        Raises:
            ConfigurationError: there is no such store.
        """
        declared = self._store(store)
        contents = [
            unexpired(declared, kept.store(store), kept.stream_time)
            for kept in self._open_stores(store)
        ]
        if declared.window is not None:
            part = next(p for p in self.graph.sub_topologies if declared in p.stores)
            layout = layout_of(part, declared)
            return dict(_shown(row) for kept in contents for row in layout.scan(kept, b"", None))
        form = format_of(declared)
        return {
            decoded(key, declared.key): form.decode(data)[0]
            for content in contents
            for key, data in content.scan()
        }

    def restart(self, *, keep_stores: bool = True) -> None:
        """End the worker as a crash would, and start another one.

        Args:
            keep_stores: False: it finds no stores on its machine and reads the changelogs.
        """
        if not keep_stores:
            self._state = KeptState()
        self._worker = self._new_worker()

    def crash_at(self, step: int) -> None:
        """Crash when the worker comes to the given step of its cycle, counted from 1, once."""
        self._crash_at = step

    @property
    def steps(self) -> int:
        """How many steps of the cycle the worker has come to."""
        return self._hits

    @property
    def crashed(self) -> bool:
        """Whether the crash asked for has happened."""
        return self._crashed

    @contextmanager
    def _crashes(self) -> Generator[None]:
        for point in failpoints.POINTS:
            failpoints.arm(point, self._at)
        try:
            yield
        except Crash:
            self._crashed = True
            self.restart()
        finally:
            for point in failpoints.POINTS:
                failpoints.disarm(point)

    def _at(self, point: str) -> None:
        self._hits += 1
        if self._hits == self._crash_at:
            raise Crash(point)

    def _is_through(self) -> bool:
        sources = self._plan.topics
        ends = {p: log.end for p, log in self.kafka.logs.items() if p.topic in sources}
        tasks = self._worker.tasks.values()
        reached = {p: task.read_to(p) for task in tasks for p in task.partitions}
        idle = not any(task.in_transaction or task.has_pending for task in tasks)
        return idle and all(reached.get(p, -1) >= end for p, end in ends.items())

    def _compiled(self, batch_rows: int | None) -> Plan:
        graph = self.graph
        context = CompileContext(batch_rows=batch_rows, closed_topics=graph.internal_topics)
        return Plan(
            graph.application,
            {p.name: compile_part(p, context) for p in graph.sub_topologies},
            lambda part, number: TransactionalId.make(graph.application, part, number),
            own_topics=frozenset(repartition.topic for repartition in graph.repartitions),
        )

    def _new_worker(self) -> Worker:
        kafka, graph = self.kafka, self.graph
        stores = {
            part.name: [StoreIdentity(store.name, store.changelog, LAYOUT) for store in part.stores]
            for part in graph.sub_topologies
        }
        for topic in changelog_topics(graph):
            kafka.partitions_of(topic)
        restoring = Restoration(
            MemoryChangelogs(kafka), float("inf"), clock=lambda: kafka.now, now=lambda: kafka.now
        )
        topics = {table.topic for table in graph.global_tables}
        self._global_tables = GlobalTables(
            MemoryChangelogs(kafka), {topic: len(kafka.partitions_of(topic)) for topic in topics}
        )
        self._read_global_tables()
        state = LocalState(
            self._state,
            stores,
            self.tasks,
            restoring,
            global_tables=self._global_tables,
            storeless=MemoryState(),
        )
        worker = Worker(
            self._plan,
            MemoryInput(kafka),
            MemoryOutputs(kafka),
            MemoryLedger(),
            OPTIONS,
            state=state,
            clock=lambda: kafka.now,
            now=lambda: kafka.now,
        )
        worker.start()
        return worker

    def _read_global_tables(self) -> None:
        """Let the next record find every row that was sent."""
        while not self._global_tables.turn():
            pass
        self._global_tables.turn()

    def _store(self, name: str) -> Store:
        stores = {s.name: s for part in self.graph.sub_topologies for s in part.stores}
        if name not in stores:
            raise ConfigurationError(
                f"there is no store {name!r}; there are {', '.join(sorted(stores)) or 'none'}"
            )
        return stores[name]

    def _open_stores(self, name: str) -> list[TaskStores]:
        owner = next(
            part.name
            for part in self.graph.sub_topologies
            if any(store.name == name for store in part.stores)
        )
        return self._state.of(owner)


def _shown(row: Row) -> tuple[Any, Any]:
    if isinstance(row.value, WindowResult):
        return (row.key, row.value.start, row.value.end), row.value.value
    return (row.key, row.timestamp), row.value


def graph_of(app: Topology | Graph | str) -> Graph:
    """Return the graph of whatever names a topology; its schemas are kept in this process."""
    if isinstance(app, Graph):
        graph = app
    else:
        graph = resolve(app.loaded() if isinstance(app, Topology) else load_app(app))
    keep_schemas_here(graph)
    return graph


def _source_counts(graph: Graph, partitions: int | Mapping[str, int]) -> dict[str, int]:
    own = {repartition.topic for repartition in graph.repartitions}
    topics = {s.topic for part in graph.sub_topologies for s in part.sources} - own
    topics |= {table.topic for table in graph.global_tables}
    if isinstance(partitions, int):
        return dict.fromkeys(topics, partitions)
    return {topic: partitions.get(topic, 1) for topic in topics}
