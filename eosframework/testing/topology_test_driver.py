"""A driver that runs a topology without a broker: several tasks, virtual time, and crashes."""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self, cast

import structlog
from pydantic import BaseModel

from eosframework.application.internal_topics import own_topics, task_counts
from eosframework.engine.calls.call_runner import CallRunner
from eosframework.engine.calls.event_loop import SteppedLoop
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.conversions import as_milliseconds
from eosframework.engine.effects.effect_call import at_once
from eosframework.engine.effects.effects import EffectPorts
from eosframework.engine.effects.journal import AtOnce
from eosframework.engine.operators.entries import LAYOUT
from eosframework.engine.operators.expiry import unexpired
from eosframework.engine.operators.refused_rows import RefusedRows
from eosframework.engine.operators.watermarks import WATERMARK_KEY
from eosframework.engine.restoration.global_tables import GlobalTables
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.restoration.restoration import Restoration
from eosframework.engine.stores.state_ports import StoreIdentity, TaskStores
from eosframework.engine.task.offsets import Progress
from eosframework.engine.task.task import Task
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan, WorkerOptions, downstream_of
from eosframework.errors import ConfigurationError
from eosframework.postgres.tables.table_ports import Claim, Deletion, RowMaker, TableRows
from eosframework.records import Headers, Position, Record, TopicPartition, WindowResult
from eosframework.serialization.references import closest
from eosframework.serialization.serdes import Serde
from eosframework.state.foreign_layouts import SubscribersLayout
from eosframework.state.layout import Row
from eosframework.state.memory import MemoryState, MemoryTaskStores
from eosframework.state.query import HistoryLayout, WaitingLayout, layout_of
from eosframework.testing.memory_decisions import MemoryDatabase, MemoryDecisions
from eosframework.testing.memory_kafka import (
    MemoryChangelogs,
    MemoryInput,
    MemoryKafka,
    MemoryOutputs,
    MemoryStartPositions,
)
from eosframework.testing.recorded_calls import RecordedCalls
from eosframework.testing.stateless_driver import (
    decoded,
    encoded,
    encoded_key,
    keep_schemas_here,
    sink_serdes,
)
from eosframework.testing.undoing import check_undoing
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Graph, Store, SubTopology, Table, TableMode, TableSink
from eosframework.topology.graph.patterns import with_matched
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.keyed_spec import DurationLike, duration_of
from eosframework.topology.spec.topology_spec import matches
from eosframework.transactions import failpoints
from eosframework.txnid import TransactionalId

TURNS = 100_000
"""Limit of turns; a topology that is still busy then sends its records in a circle."""

OPTIONS = WorkerOptions(
    commit_interval_seconds=0.1,
    transaction_timeout_seconds=30.0,
    heartbeat_interval_seconds=3.0,
    takeover_deadline_seconds=60.0,
    batch_records=100,
    leave_on_stop=True,
    stop_deadline_seconds=20.0,
)


class MachineState:
    """The stores of one machine, in memory; they survive a worker. See `StateBackend`."""

    def __init__(self) -> None:
        self._tasks: dict[str, _LastingStores] = {}

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> TaskStores:
        """Return a task's stores with their previous content."""
        return self._tasks.setdefault(task, _LastingStores(stores))

    def of(self, sub_topology: str) -> list[TaskStores]:
        """Return the stores of all tasks of a sub-topology."""
        return [
            stores
            for task, stores in self._tasks.items()
            if task.rpartition("-")[0] == sub_topology
        ]

    def close(self) -> None:
        """Keep all stores."""


class _LastingStores(MemoryTaskStores):
    def close(self) -> None:
        """Keep the content."""


class Crash(BaseException):
    """Ends a worker on the spot, as `kill -9` would."""


@contextmanager
def _warnings_only() -> Generator[None]:
    """Keep a worker's events out of a test's output or a notebook, if logging is not configured."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        yield
    finally:
        structlog.reset_defaults()


class TopologyTestDriver:
    """Sends records through a topology and shows outputs and state; the worker's own code runs it.

    It tests the user's functions and the topology, not Kafka: for that there are real brokers. The
    worker's events below a warning are shown only if structlog was configured before.

    Args:
        app: a Topology, a graph, or an APP argument of the command line.
        partitions: of every source topic, or by topic.
        batch_rows: most rows in a batch for batch operators; None: all available rows.
        max_task_idle: the time on the driver's clock after which a task at the end of its sources
            counts as idle, as `worker.max_task_idle_seconds`; None: never, so that stream time
            after a repartition topic moves only with all of its upstream tasks.
        record: a file that gets the calls of coroutines, with their results.
        replay: such a file; its results are taken, and neither functions nor resources are called.

    Raises:
        ConfigurationError: there is no such recording.
    """

    def __init__(
        self,
        app: Topology | Graph | str,
        *,
        partitions: int | Mapping[str, int] = 1,
        batch_rows: int | None = None,
        max_task_idle: DurationLike | None = "0s",
        record: Path | str | None = None,
        replay: Path | str | None = None,
    ) -> None:
        self._recorded = _recorded(record, replay)
        self.graph = graph_of(app)
        self._not_undone: list[str] = []
        check_undoing(self.graph, self._not_undone)
        self._partitions, self._batch_rows = partitions, batch_rows
        counts = self._sized()
        default = max(counts.values(), default=1)
        sinks = dict.fromkeys(self.graph.sink_topics, default)
        self.kafka = MemoryKafka(sinks | self._sizes)
        self._serdes = sink_serdes(self.graph)
        idle = math.inf if max_task_idle is None else duration_of(max_task_idle).total_seconds()
        self._options = replace(OPTIONS, max_task_idle_seconds=idle)
        self._plan = self._compiled(batch_rows)
        self._read: dict[TopicPartition, int] = {}
        self._state = MachineState()
        self._database = MemoryDatabase(self.graph.together)
        self._calls: CallRunner | None = None
        self._crash_at: int | None = None
        self._hits = 0
        self._crashed = False
        self._worker = self._new_worker()

    def _sized(self) -> dict[str, int]:
        """Set the partitions of internal topics and the tasks; return those of the sources."""
        counts = _source_counts(self.graph, self._partitions)
        own = own_topics(self.graph, counts)
        self._sizes = counts | {topic.name: topic.partitions or 1 for topic in own.values()}
        self.tasks = task_counts(self.graph, self._sizes)
        return counts

    def _match(self, topic: str) -> None:
        """Read a topic that a pattern matches, as a worker that finds it starts again."""
        known = {*self.graph.matched_topics}
        if topic in known or not any(matches(one.pattern, topic) for one in self.graph.patterns):
            return
        self.graph = with_matched(self.graph, {*known, topic})
        self.kafka.add(topic, self._sized()[topic])
        self._serdes = sink_serdes(self.graph)
        self._plan = self._compiled(self._batch_rows)
        self._worker = self._new_worker()

    def __enter__(self) -> Self:
        """Return the driver; `with` closes it at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the resources of steps that call a coroutine; other topologies have none."""
        if self._calls is not None:
            self._calls.close()
        if self._recorded is not None:
            self._recorded.save()

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
        timestamp: int | datetime = 0,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Append a record to a source topic; `run` processes it.

        Args:
            topic: a source topic, or any topic that a source's pattern matches.
            value: encoded with the source's serde; bytes stay unchanged.
            key: as for the value.
            timestamp: in milliseconds since the epoch, or a datetime with a time zone.
            headers: in order.
            partition: None: chosen by the key.
        """
        self._match(topic)
        tables = {table.topic: table for table in self.graph.global_tables}
        written = {s.topic: s for s in self.graph.table_sinks if s.sub_topology is None}
        parts = self.graph.sub_topologies
        sources = written | tables | {s.topic: s for p in parts for s in p.sources}
        if topic not in sources:
            raise ConfigurationError(
                f"no source reads topic {topic!r}; there are {', '.join(sorted(sources))}"
            )
        source = sources[topic]
        key_bytes = encoded_key(key, source.key)
        number = -1 if partition is None else partition
        self.kafka.append(
            (
                topic,
                encoded(value, source.value),
                key_bytes,
                number,
                None,
                None,
                as_milliseconds(timestamp),
                list(headers) or None,
            )
        )
        if topic in tables:
            self._read_global_tables()

    def run(self) -> None:
        """Process and commit all records that were sent, and their results.

        Raises:
            ConfigurationError: the records circulate, or `subtract` of a grouped table does not
                undo `add`.
        """
        for _ in range(TURNS):
            self.turn()
            if self._not_undone:
                raise ConfigurationError(self._not_undone.pop())
            if self._is_through():
                if self._recorded is not None:
                    self._recorded.save()
                return
        raise ConfigurationError(
            f"topology {self.graph.application!r} is not through after {TURNS:,} turns; does it "
            f"read a topic that it writes?"
        )

    @_warnings_only()
    def turn(self) -> None:
        """Run one turn of the worker: it may process a part of what was sent."""
        with self._crashes():
            self._worker.turn()

    @_warnings_only()
    def advance(self, by: DurationLike) -> None:
        """Let the wall clock pass, and process the results.

        Args:
            by: a timedelta, or text such as `10m`.
        """
        until = self.kafka.now + duration_of(by).total_seconds()
        while self.kafka.now < until:
            before = self.kafka.now
            with self._crashes():
                self._worker.turn()
            if self.kafka.now == before and self._is_through():
                self.kafka.now = until
        self.run()

    def read(self, topic: str) -> list[Record]:
        """Return the committed records of a topic that were not returned before.

        Records of one partition are in its order; they are decoded if the topology names the topic
        as a sink.

        Raises:
            ConfigurationError: the topology neither reads nor writes the topic.
        """
        self._require_topic(topic)
        found: list[Record] = []
        for partition in self.kafka.partitions_of(topic):
            log = self.kafka.logs[partition]
            key, value = self._serdes.get(topic, (None, None))
            for message in log.read(self._read.get(partition, 0), log.end):
                if message.key() == WATERMARK_KEY:
                    continue
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
        """Return the content of a store, over all tasks: committed values by key.

        The keys of windows are (key, start, end), those of `deduplicate` (key, timestamp). A table
        with history shows its current rows. The records that wait in a join of streams are a list
        for each key, of {"side", "value"}; the subscribers of a foreign key are a list as well.

        Raises:
            ConfigurationError: there is no such store.
        """
        declared = self._store(store)
        contents = [
            unexpired(declared, kept.store(store), kept.stream_time)
            for kept in self._open_stores(store)
        ]
        part = next(p for p in self.graph.sub_topologies if declared in p.stores)
        layout = layout_of(part, declared)
        rows = [row for kept in contents for row in layout.scan(kept, b"", None)]
        if isinstance(layout, WaitingLayout | SubscribersLayout):
            waiting: dict[Any, list[Any]] = {}
            for row in rows:
                waiting.setdefault(row.key, []).append(row.value)
            return waiting
        if isinstance(layout, HistoryLayout):  # Its keys are bytes of the source's keys.
            return {decoded(row.key, key_of_table(part, declared)): row.value for row in rows}
        return dict(_shown(row, is_windowed=declared.window is not None) for row in rows)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows that a table would have after all committed records.

        The driver has no database: it neither checks types nor applies defaults of columns, and
        rows that a database would refuse are there.

        Args:
            table: its name, as given to `to_table`.

        Returns:
            The rows: appended ones in the order of their records, partition by partition; with
            `keys` the newest of each key.

        Raises:
            ConfigurationError: the topology writes no such table.
            RecordFailed: a record gives no row, and `on_error` is `fail`.
        """
        found = [sink for sink in self.graph.all_tables if table in {t.table for t in sink.tables}]
        if not found:
            known = sorted({t.table for sink in self.graph.all_tables for t in sink.tables})
            raise ConfigurationError(
                f"the topology writes no table {table!r}{closest(table, known)}; there are "
                f"{', '.join(known) or 'none'}"
            )
        return folded_rows([written for sink in found for written in self._written(sink, table)])

    def _written(self, sink: TableSink, table: str) -> Iterator[TableRows]:
        if sink in self.graph.together:
            mine = [one for one in sink.tables if one.table == table]
            yield from (rows for rows in self._database.rows if rows.table in mine)
            return
        maker = RowMaker(sink)
        for partition in self.kafka.partitions_of(sink.topic):
            log = self.kafka.logs[partition]
            batch = maker.empty(Claim(partition, 0, None), 0)
            if messages := log.read(0, log.end):
                maker.add(messages, batch)
            yield from (rows for rows in batch.tables if rows.table.table == table)

    def restore(
        self,
        sub_topology: str,
        entries: Mapping[str, Mapping[bytes, bytes]],
        *,
        partition: int = 0,
        stream_time: int = 0,
    ) -> None:
        """Begin with a state, as a worker that takes a task over; before the first record.

        `eosframework why --as-test` prints a test that calls it.

        Args:
            sub_topology: of the task, as `describe` prints it.
            entries: by store, the entries as they are in its changelog.
            partition: of the task.
            stream_time: of the task, in milliseconds since the epoch.

        Raises:
            ConfigurationError: there is no such sub-topology or store.
        """
        parts = {part.name: part for part in self.graph.sub_topologies}
        if sub_topology not in parts:
            raise ConfigurationError(
                f"there is no sub-topology {sub_topology!r}; there are {', '.join(sorted(parts))}"
            )
        part = parts[sub_topology]
        for name, content in entries.items():
            changelog = self._store(name).changelog
            for key, value in content.items():
                where = (partition, None, None, stream_time, None)
                self.kafka.append((changelog, value, key, *where))
        progress = str(Progress(1, stream_time))
        for topic in part.topics:
            place = TopicPartition(topic, partition)
            if place in self.kafka.logs:
                end = self.kafka.logs[place].end
                self.kafka.positions[place] = Position(*place, end, progress)
        self.restart(keep_stores=False)

    def restart(self, *, keep_stores: bool = True) -> None:
        """End the worker as a crash would, and start another one.

        Args:
            keep_stores: False: it finds no stores on its machine and restores the changelogs.
        """
        if not keep_stores:
            self._state = MachineState()
        self._worker = self._new_worker()

    def crash_at(self, step: int) -> None:
        """Crash once, when the worker reaches the given step of its cycle, counted from 1."""
        self._crash_at = step

    @property
    def passed_over(self) -> int:
        """The number of records below stream time, because their upstream task counted as idle."""
        return sum(task.time.passed_over for task in self._worker.tasks.values())

    @property
    def closed_by_clock(self) -> int:
        """The number of times that the wall clock closed windows of a task."""
        return self._worker.view().counts.closed_by_clock

    @property
    def held(self) -> int:
        """The number of records that wait for stream time; see `worker.reorder_limit`."""
        return self._worker.view().counts.held

    @property
    def steps(self) -> int:
        """The number of steps of the cycle that the worker has reached."""
        return self._hits

    @property
    def crashed(self) -> bool:
        """True if the requested crash has happened."""
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
        if self._calls is not None and self._calls.in_flight:
            return False
        sources = self._plan.topics
        ends = {p: log.end for p, log in self.kafka.logs.items() if p.topic in sources}
        tasks = self._worker.tasks.values()
        reached = {p: task.read_to(p) for task in tasks for p in task.partitions}
        idle = not any(
            task.in_transaction or task.has_pending or task.owes_clock or self._owes_time(task)
            for task in tasks
        )
        return idle and all(reached.get(p, -1) >= end for p, end in ends.items())

    def _owes_time(self, task: Task) -> bool:
        """Return whether a task has yet to announce its stream time, or that it is idle."""
        if math.isinf(self._options.max_task_idle_seconds):
            return task.time.is_untold
        return task.time.is_kept and not task.time.rests

    def _compiled(self, batch_rows: int | None) -> Plan:
        graph = self.graph
        timed = timed_topics(graph)
        context = CompileContext(
            batch_rows=batch_rows,
            own_topics=graph.repartition_topics,
            timed_topics=timed,
            refused_rows=(refused := RefusedRows()),
            same_task=self.kafka.is_same_partition,
        )
        return Plan(
            graph.application,
            {p.name: compile_part(p, context) for p in graph.sub_topologies},
            lambda part, number: TransactionalId.make(graph.application, part, number),
            own_topics=graph.repartition_topics,
            downstream=downstream_of(timed, self._sizes),
            refused_rows=refused,
        )

    @_warnings_only()
    def _new_worker(self) -> Worker:
        kafka, graph = self.kafka, self.graph
        stores = {
            part.name: [StoreIdentity(store.name, store.changelog, LAYOUT) for store in part.stores]
            for part in graph.sub_topologies
        }
        for topic in graph.changelog_topics:
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
            now=lambda: kafka.now,
        )
        worker = Worker(
            self._plan,
            self._new_input(),
            MemoryOutputs(kafka),
            MemoryStartPositions(),
            self._options,
            state=state,
            decisions=MemoryDecisions(self._database) if graph.together else None,
            clock=lambda: kafka.now,
            now=lambda: kafka.now,
            calls=self._new_calls(),
            effects=self._effect_ports(),
        )
        worker.start()
        return worker

    def _effect_ports(self) -> EffectPorts | None:
        for topic in self.graph.effects_topics:
            self.kafka.partitions_of(topic)
        if not self.graph.effects_topics:
            return None
        outputs, topics = MemoryOutputs(self.kafka), MemoryChangelogs(self.kafka)
        return EffectPorts(outputs, topics, run=at_once, background=AtOnce)

    def _new_calls(self) -> CallRunner | None:
        """Return what runs coroutines on the driver's clock; those of an earlier worker end."""
        if self._calls is not None:
            self._calls.close()
        if self._plan.makes_calls:
            kafka = self.kafka
            recorded = self._recorded
            self._calls = CallRunner(
                new_loop=lambda: SteppedLoop(lambda: kafka.now),
                function_of=None if recorded is None else recorded.function_of,
                opens_resources=recorded is None or not recorded.replays,
            )
        return self._calls

    def _new_input(self) -> MemoryInput:
        return MemoryInput(self.kafka)

    @_warnings_only()
    def _read_global_tables(self) -> None:
        """Read all rows that were sent, for the next record."""
        while not self._global_tables.turn():
            pass
        self._global_tables.turn()

    def _require_topic(self, topic: str) -> None:
        known = {partition.topic for partition in self.kafka.logs} | {*self.graph.written_topics}
        parts = self.graph.sub_topologies
        if topic not in known and not any(part.dynamic_sinks for part in parts):
            raise ConfigurationError(
                f"the topology neither reads nor writes topic {topic!r}"
                f"{closest(topic, known)}; there are {', '.join(sorted(known))}"
            )

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


def _recorded(record: Path | str | None, replay: Path | str | None) -> RecordedCalls | None:
    if record is not None and replay is not None:
        raise ConfigurationError(f"record={record} and replay={replay} exclude each other")
    if record is None and replay is None:
        return None
    return RecordedCalls(Path(record or replay or ""), replays=replay is not None)


def key_of_table(part: SubTopology, store: Store) -> Serde:
    """Return the serde of the keys of a table source, given its store."""
    return next(
        source.key
        for source in part.sources
        for child in source.children
        if isinstance(child, Table) and child.store is store
    )


def folded_rows(written: Sequence[TableRows]) -> list[dict[str, Any]]:
    """Return the rows of a table after all writes, in their order."""
    appended: list[dict[str, Any]] = []
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rows in written:
        keys = rows.table.keys
        for row in rows.rows:
            if isinstance(row, Deletion):
                newest.pop(tuple(row.keys[name] for name in keys), None)
                continue
            shown = row.model_dump() if isinstance(row, BaseModel) else dict(row)
            if rows.table.mode is TableMode.APPEND:
                appended.append(shown)
            else:
                newest[tuple(shown.get(name) for name in keys)] = shown
    return [*appended, *newest.values()]


def _shown(row: Row, *, is_windowed: bool) -> tuple[Any, Any]:
    if not is_windowed:
        return row.key, row.value
    if isinstance(row.value, WindowResult):
        result = cast("WindowResult", row.value)
        return (row.key, result.start, result.end), result.value
    return (row.key, row.timestamp), row.value


def graph_of(app: Topology | Graph | str) -> Graph:
    """Return the graph of a topology in any form; its schemas are bound to this process."""
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
    topics |= {sink.topic for sink in graph.table_sinks if sink.sub_topology is None}
    if isinstance(partitions, int):
        return dict.fromkeys(topics, partitions)
    return {topic: partitions.get(topic, 1) for topic in topics}
