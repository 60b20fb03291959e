"""A task of an application in memory, which runs records again from a state of the past.

RR1. stores, positions, stream time and transaction number are those with which the first
     transaction began, as a worker that takes the task over has them
RR2. the records up to the one in question run in the worker's order, each in a transaction of its
     own; a changelog record of theirs says which record wrote an entry
RR3. the record in question runs in a new task over the same stores, so each entry that it meets is
     read from them, and the reads are noted

How records are divided into transactions changes no result, except those at a commit
(`emit: commit`): for these all records of their transaction run in one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eosframework.application.internal_topics import task_counts
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import CompiledPart, compile_part
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.engine.operators.entries import LAYOUT
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.engine.task.input_queues import Pending, TimestampQueue
from eosframework.engine.task.offsets import Progress
from eosframework.engine.task.open_state import OpenState
from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task
from eosframework.engine.worker.retries import delays_of
from eosframework.kafka.client.partitioner import same_partition
from eosframework.kafka.inspect.written_record import RecordPlace
from eosframework.records import Position, TopicPartition
from eosframework.state.memory import MemoryStore, MemoryTaskStores
from eosframework.topology.graph.graph import (
    Aggregate,
    GlobalTable,
    Graph,
    JoinSide,
    Lookup,
    StreamJoin,
    SubTopology,
    Table,
)
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.graph.walk import nodes_of
from eosframework.transactions.ports import Message, Output
from eosframework.transactions.session.session_states import Event, Policy
from eosframework.transactions.session.transaction_session import TransactionSession
from eosframework.txnid import TransactionalId

_TIMEOUT_SECONDS = 3600.0
"""Nothing here expires; a debugger may stop for long."""

EntryKey = tuple[str, bytes]
"""A store's name and the encoded key of an entry."""


@dataclass(frozen=True, slots=True)
class _Delivered:
    """A delivery report; the offset only has to exist."""

    offset_: int

    def offset(self) -> int:
        return self.offset_


class _Outputs:
    """Keeps what a task produces; see `TransactionalOutput`."""

    is_suspect = False

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.sent: list[Output] = []
        self._count = 0

    @property
    def produce(self) -> Callable[..., None]:
        return self._take

    def _take(self, *output: Any) -> None:
        self._count += 1
        self.sent.append(output)  # type: ignore[arg-type]
        if output[4] is not None:
            output[4](None, _Delivered(self._count))

    def explain(self, error: Exception) -> Any:
        return error

    def begin(self) -> None:
        """Do nothing: there is no broker."""

    def poll(self, timeout_seconds: float = 0) -> None:
        """Do nothing: reports were given at once."""

    def deliver(self) -> None:
        """Do nothing: nothing waits."""

    def taken(self) -> list[Output]:
        """Return what was produced since the last call."""
        sent, self.sent = self.sent, []
        return sent


@dataclass(slots=True)
class Reads:
    """The reads of one store by a record.

    Args:
        found: the entries that were found.
        absent: the keys that were looked up and are not there.
        scans: ranges of keys that were read.
    """

    found: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    absent: set[bytes] = field(default_factory=set[bytes])
    scans: list[tuple[bytes, bytes | None]] = field(
        default_factory=list[tuple[bytes, bytes | None]]
    )


class _NotedStore(MemoryStore):
    """A store that notes what is read of another one."""

    def __init__(self, store: MemoryStore, reads: Reads) -> None:
        super().__init__()
        self._store, self._reads = store, reads

    def get(self, key: bytes) -> bytes | None:
        value = self._store.get(key)
        if value is None:
            self._reads.absent.add(key)
        else:
            self._reads.found[key] = value
        return value

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._reads.scans.append((first, last))
        for key, value in self._store.scan(first, last, reverse=reverse):
            self._reads.found[key] = value
            yield key, value

    def apply(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        self._store.apply(changes)


class NotedStores(MemoryTaskStores):
    """The stores of a task; `reads` has what was read of each."""

    def __init__(self, stores: Mapping[str, MemoryStore]) -> None:
        super().__init__(())
        self.reads = {name: Reads() for name in stores}
        self._stores = {name: _NotedStore(one, self.reads[name]) for name, one in stores.items()}


@dataclass(frozen=True, slots=True)
class Start:
    """The state in which a task begins (RR1).

    Args:
        transaction: number of the last transaction before.
        stream_time: in milliseconds.
        positions: the next offset of each source partition.
    """

    transaction: int
    stream_time: int
    positions: Mapping[TopicPartition, int]

    def as_positions(self) -> list[Position]:
        """Return the positions as a group has them committed."""
        progress = str(Progress(self.transaction, self.stream_time))
        return [Position(*p, offset, progress) for p, offset in self.positions.items()]


class TaskCode:
    """The compiled sub-topology of a task.

    Args:
        graph: the application.
        part: the sub-topology.
        number: the task's partition.
        partitions: number of partitions by source topic, for upstream tasks.
    """

    def __init__(
        self, graph: Graph, part: SubTopology, number: int, partitions: Mapping[str, int]
    ) -> None:
        timed = timed_topics(graph)
        context = CompileContext(
            receipts=True,
            own_topics=graph.repartition_topics,
            timed_topics=timed,
            same_task=same_partition(partitions),
        )
        self.graph, self.part, self.number = graph, part, number
        own = graph.repartition_topics
        self.partitions = {topic: n for topic, n in partitions.items() if topic not in own}
        self.compiled: CompiledPart = compile_part(part, context)
        counts = task_counts(graph, partitions)
        self.upstream = {
            topic: counts.get(one.writer, 0) for topic, one in self.compiled.paced_by.items()
        }

    def open(self, stores: MemoryTaskStores, start: Start) -> RerunTask:
        """Return a task over stores."""
        return RerunTask(self, stores, start)

    def in_order(
        self, records: Mapping[TopicPartition, Sequence[Message]]
    ) -> Iterator[tuple[TopicPartition, Message]]:
        """Yield records of several partitions in the order of a worker that has all of them."""
        times = {p: self.compiled.sources[p.topic].time_of for p in self.compiled.in_turn(records)}
        queue = TimestampQueue(times, 0.0, lambda: 0.0)
        for partition, messages in records.items():
            if messages:
                queue.add(Pending(partition, messages, None))
            queue.reached_end(partition, messages[-1].offset() + 1 if messages else 0)
        while queue.is_ready():
            taken = queue.take(1)
            yield taken.partition, taken.messages[0]


class RerunTask:
    """A worker's task with a producer that keeps its outputs."""

    def __init__(self, code: TaskCode, stores: MemoryTaskStores, start: Start) -> None:
        part, compiled = code.part, code.compiled
        identity = TransactionalId.make(code.graph.application, part.name, code.number)
        self._outputs = _Outputs(str(identity))
        policy = Policy(_TIMEOUT_SECONDS, "", "")
        self._session: TransactionSession[Any] = TransactionSession(
            self._outputs, policy, lambda: 0.0
        )
        state = None
        if compiled.keyed:
            state = OpenState(compiled, code.number, stores, upstream=code.upstream)
        self._changelogs = {store.changelog: store.name for store in part.stores}
        self.task = Task(
            identity,
            {p.topic: compiled.sources[p.topic] for p in start.positions},
            self._outputs,
            group=ProducerGroup(self._session, lambda: 0.0),
            markers={},
            transaction_timeout_seconds=_TIMEOUT_SECONDS,
            clock=lambda: 0.0,
            receipts=True,
            emissions=compiled.emissions,
            stores=state,
            failures=FailureHandler(delays_of(part), limits=compiled.limits),
        )
        self.task.start_at(start.as_positions())

    def run(self, records: Iterable[tuple[TopicPartition, Message]]) -> list[Output]:
        """Run records in one transaction, and those that they leave due; return the outputs.

        Raises:
            RecordFailed: a record fails, and its policy is to fail.
        """
        task = self.task
        for partition, message in records:
            task.add(partition, [message], object())  # The same membership would join partitions.
        while task.has_pending:
            task.run(math.inf)
            if task.wants_commit:
                self._commit()
        self._commit()
        return self._outputs.taken()

    def _commit(self) -> None:
        if self.task.failure is not None:
            raise self.task.failure
        if self.task.has_open_progress:
            self.task.commit()
            self._session.move(Event.COMMITTING)
            self._session.committed(Event.COMMITTED)
            self.task.committed()

    @property
    def reached(self) -> Start:
        """The state after the last transaction."""
        reached = self.task.reached
        positions = self.task.positions
        return Start(reached.transaction, self.task.time.now, dict(positions))

    def written(self, outputs: Iterable[Output]) -> Iterator[tuple[EntryKey, bytes | None]]:
        """Yield the entries that changelog records among the outputs write."""
        for topic, value, key, *_ in outputs:
            if (store := self._changelogs.get(topic)) is not None:
                yield (store, key or b""), value

    def others(self, outputs: Iterable[Output]) -> list[Output]:
        """Return the outputs that are no changelog records."""
        return [output for output in outputs if output[0] not in self._changelogs]


def memory_stores(part: SubTopology, contents: Mapping[str, MemoryStore]) -> MemoryTaskStores:
    """Return the stores of a task with the given contents."""
    identities = [StoreIdentity(store.name, store.changelog, LAYOUT) for store in part.stores]
    stores = MemoryTaskStores(identities)
    for name, content in contents.items():
        stores.store(name).apply(list(content.scan()))
    return stores


def refusal(compiled: CompiledPart) -> str | None:
    """Return the reason why a sub-topology cannot be run again; None: it can."""
    part = compiled.part
    for node in nodes_of(part):
        if isinstance(node, Lookup) and isinstance(node.view.origin, GlobalTable):
            return (
                f"step {node.name!r} looks rows up in global table {node.view.origin.topic}, whose "
                f"content at that time is not recorded"
            )
    if any(source.calls for source in compiled.sources.values()):
        return "a step calls a service, whose answers are not recorded"
    if part.together:
        return "it writes rows of a database in the same transaction"
    return None


def traced_stores(part: SubTopology) -> dict[str, bool]:
    """Return the stores of windows, joins and tables: True if an entry has several records."""
    found: dict[str, bool] = {}
    for node in nodes_of(part):
        match node:
            case Aggregate() if node.store.window is not None:
                found[node.store.name] = True
            case Table():
                found[node.store.name] = False
            case JoinSide(join=StreamJoin() as join):
                found[join.store.name] = True
            case _:
                pass
    return found


class Provenance:
    """The records that wrote each entry (RR2).

    Args:
        part: the sub-topology.
    """

    def __init__(self, part: SubTopology) -> None:
        self._adds = traced_stores(part)
        self._writers: dict[EntryKey, list[tuple[RecordPlace, int]]] = {}

    def wrote(
        self, place: RecordPlace, time_ms: int, written: Iterable[tuple[EntryKey, bytes | None]]
    ) -> None:
        """Note the entries that a record wrote."""
        for entry, value in written:
            if entry[0] not in self._adds:
                continue
            if value is None:
                self._writers.pop(entry, None)
            elif self._adds[entry[0]]:
                self._writers.setdefault(entry, []).append((place, time_ms))
            else:
                self._writers[entry] = [(place, time_ms)]

    def of(self, entry: EntryKey) -> Sequence[tuple[RecordPlace, int]]:
        """Return the records that wrote an entry since it was absent, each with its event time."""
        return self._writers.get(entry, ())
