"""A checked topology as the worker runs it: functions resolved, connected parts found.

A topology is first a `spec` (what the user wrote, as data), then a graph (this module).
Nodes form a DAG: a node that several streams merge into is one object with several parents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from eosframework.serialization.schemas import Codec
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.batch_columns import Columns
from eosframework.topology.graph.join_nodes import (
    GlobalTable,
    Joins,
    Lookup,
    StreamJoin,
    Table,
    TableJoin,
    View,
)
from eosframework.topology.graph.process_nodes import Processor
from eosframework.topology.spec.emission import Emit as Emit
from eosframework.topology.spec.window_spec import Window
from eosframework.txnid import control_topic


class Operator(StrEnum):
    """What a step does with each record. The comment gives the function's signature."""

    FILTER = "filter"  # value -> bool
    MAP_VALUES = "map_values"  # value -> value
    FLAT_MAP_VALUES = "flat_map_values"  # value -> iterable of values
    PEEK = "peek"  # value -> ignored
    SELECT_KEY = "select_key"  # Record -> key
    MAP = "map"  # Record -> Record or (key, value)
    FLAT_MAP = "flat_map"  # Record -> iterable of Record or (key, value)
    PROCESS = "process"  # Record -> None or iterable of Record or (key, value)
    MAP_BATCH = "map_batch"  # RecordBatch -> RecordBatch of as many rows
    FILTER_BATCH = "filter_batch"  # RecordBatch -> array of booleans, one for each row
    BRANCH = "branch"  # value -> index into Step.branches, or None: the record goes nowhere


class FoldKind(StrEnum):
    """How values become an aggregate. The comment gives the functions it takes, by name."""

    COUNT = "count"
    SUM = "sum"  # of: value -> number
    MIN = "min"  # of: value -> what is compared
    MAX = "max"  # of: value -> what is compared
    REDUCE = "reduce"  # add: (aggregate, value) -> aggregate
    AGGREGATE = "aggregate"  # initial: () -> aggregate; add: (aggregate, value) -> aggregate;
    # of session windows also merge: (aggregate, aggregate) -> aggregate
    DEDUPLICATE = "deduplicate"  # by: value -> what two records have to share; goes on as it came


class Policy(StrEnum):
    """What happens with a record that cannot be processed."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class OnError:
    """A policy; `topic` is the dead-letter topic where the policy is `dead_letter`.

    Args:
        retry_ms: how long to wait before each further attempt.
        replay: there is a topic for letters that are replayed.
    """

    policy: Policy = Policy.FAIL
    topic: str | None = None
    retry_ms: tuple[int, ...] = ()
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function and the name it goes by in messages (`flights:is_late`)."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Sink:
    """The end of a stream: a topic, or a function that chooses one for each record."""

    name: str
    topic: str | Function
    key: Serde
    value: Serde
    on_error: OnError


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """What a keyed operator remembers; each task has a part of its own.

    Args:
        name: unique in the application.
        changelog: the compacted topic that has every change, from which it can be rebuilt.
        key: serde of its keys, for reading it by key.
        value: serde of its values.
        version: of the values' format.
        upgrade: takes (bytes, version) of an older value.
        window: of the values; None: there is one value for each key.
        ttl_ms: an entry counts as absent when stream time is further than this past its own time;
            None: never.
    """

    name: str
    changelog: str
    key: Serde
    value: Serde
    version: int = 1
    upgrade: Function | None = None
    window: Window | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """Folds the records of each key into one value, which it keeps in a store.

    Args:
        functions: of the fold, by the names that `FoldKind` gives them.
        children: nodes that take the key with its aggregate.
    """

    name: str
    stream: str
    fold: FoldKind
    functions: dict[str, Function]
    store: Store
    emit: Emit
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operator with what follows it.

    Args:
        name: where the user wrote it, for messages: `late.filter(is_late)`.
        stream: the stream it is declared in.
        children: nodes that take what the step gives; a branch has none here.
        branches: of a branch only: in order, a predicate on the value (None: whatever is left)
            and the nodes that take the records for which it is the first to hold.
        columns: of a batch operator right behind a source only: what it reads of the values.
    """

    name: str
    stream: str
    operator: Operator
    function: Function
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])
    branches: tuple[tuple[Function | None, list[Node]], ...] = ()
    columns: Columns | None = None

    @property
    def is_batch(self) -> bool:
        """Whether its function takes many records at once."""
        return self.operator in (Operator.MAP_BATCH, Operator.FILTER_BATCH)


Node = Step | Sink | Aggregate | Processor | Joins
"""What can follow a source or a step."""

Keyed = Aggregate | Processor | Table | Lookup | TableJoin | StreamJoin | View
"""What works on the stores of a task, or looks into them."""


@dataclass(frozen=True, slots=True)
class Again:
    """What a topic is for whose records are processed again.

    Args:
        topic: the source that they came from.
        delay_ms: for how long each waits; None: they are dead letters that are replayed, at once.
    """

    topic: str
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A topic that is read, and the nodes that take each of its records.

    Args:
        timestamp: takes the decoded value and returns the event time, as milliseconds since
            the epoch or a datetime; None: the record's own timestamp.
        on_error: for records that do not decode.
        again: of a topic of the application's own for records of another source that are processed
            again; None: it is a source that the user declared, or a repartition topic.
        ahead_ms: by how many milliseconds the event time that a function gives a record may lie
            ahead of the record's own timestamp; None: no limit.
    """

    name: str
    topic: str
    key: Serde
    value: Serde
    timestamp: Function | None
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])
    again: Again | None = None
    ahead_ms: int | None = None


class TableMode(StrEnum):
    """How rows enter a table."""

    APPEND = "append"
    UPSERT = "upsert"
    UPSERT_DELETE = "upsert_delete"


@dataclass(frozen=True, slots=True, eq=False)
class TableSink:
    """The end of a stream in a table of the database.

    Args:
        table: its name, with a schema before a dot where one was given.
        keys: columns that tell rows apart; empty where rows are appended.
        row: takes the whole record and returns a row, a list of rows or None; None: the value.
        model: pydantic model with the columns, where one is known.
        on_error: for rows that the database refuses; a dead letter goes to the table of refused
            rows.
    """

    name: str
    table: str
    mode: TableMode
    keys: tuple[str, ...]
    row: Function | None
    model: type[BaseModel] | None
    on_error: Policy


@dataclass(frozen=True, slots=True, eq=False)
class Persister:
    """What carries a topic's records into tables; one task for each partition.

    Args:
        tables: those that every record goes to, in one transaction of the database.
        on_error: for records that do not decode.
        sub_topology: that which writes the topic, if it is the application's own: it has a
            partition for each task of that one. None: a source topic, read as it is.
    """

    name: str
    topic: str
    key: Serde
    value: Serde
    tables: tuple[TableSink, ...]
    on_error: Policy
    sub_topology: str | None = None


@dataclass(frozen=True, slots=True)
class SubTopology:
    """Streams connected without a repartition topic; one task for each of its partitions."""

    name: str
    sources: tuple[Source, ...]
    sink_topics: tuple[str, ...]
    """Topics written that are known by name, sorted, dead-letter topics included."""
    dynamic_sinks: tuple[str, ...] = ()
    """Names of sinks that choose their topic for each record."""
    stores: tuple[Store, ...] = ()
    """What its tasks remember."""


@dataclass(frozen=True, slots=True)
class Repartition:
    """A topic of the application's own, through which records go to the task of their new key.

    Args:
        topic: its name.
        writer: sub-topology that writes it.
        partitions: None: as many as its writer has tasks.
        again: it is for records of its writer's own that are processed again.
    """

    topic: str
    writer: str
    partitions: int | None = None
    again: Again | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole application."""

    application: str
    sub_topologies: tuple[SubTopology, ...]
    persisters: tuple[Persister, ...] = ()
    repartitions: tuple[Repartition, ...] = ()
    global_tables: tuple[GlobalTable, ...] = ()
    codecs: tuple[Codec, ...] = ()
    """What has to be bound to a schema registry before a record is run."""

    def sub_topology(self, name: str) -> SubTopology:
        """Return the one of this name, which there is."""
        return next(part for part in self.sub_topologies if part.name == name)

    def with_times_within(self, seconds: float | None, trusted: Collection[str] = ()) -> Graph:
        """Return the same application with a limit for event times; see `Source.ahead_ms`.

        Args:
            seconds: that an event time may lie ahead of its record's own timestamp; None: no limit.
            trusted: source topics without a limit.
        """
        ahead_ms = None if seconds is None else round(seconds * 1000)
        parts = (
            replace(
                part,
                sources=tuple(
                    source if source.topic in trusted else replace(source, ahead_ms=ahead_ms)
                    for source in part.sources
                ),
            )
            for part in self.sub_topologies
        )
        return replace(self, sub_topologies=tuple(parts))

    @property
    def whole_topics(self) -> frozenset[str]:
        """Topics that are read from their beginning, wherever the application starts.

        A table needs all of its rows; in the application's own topics is what it sent there.
        """
        tables = (
            source.topic
            for part in self.sub_topologies
            for source in part.sources
            if any(isinstance(child, Table) for child in source.children)
        )
        return frozenset((*tables, *(repartition.topic for repartition in self.repartitions)))

    @property
    def internal_topics(self) -> frozenset[str]:
        """Topics that the application keeps for itself: a record of others does harm there."""
        stores = (store.changelog for part in self.sub_topologies for store in part.stores)
        sources = (source for part in self.sub_topologies for source in part.sources)
        again = (source.topic for source in sources if source.again is not None)
        repartitions = (repartition.topic for repartition in self.repartitions)
        registry = control_topic(self.application)
        return frozenset((registry, *stores, *again, *repartitions))
