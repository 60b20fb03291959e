"""The nodes of a graph and the graph itself.

Nodes form a DAG: a node into which several streams merge is one object with several parents.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pydantic import BaseModel

from eosframework.serialization.schemas import Codec
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.node_kinds import FoldKind as FoldKind
from eosframework.topology.graph.node_kinds import Function as Function
from eosframework.topology.graph.node_kinds import JoinKind as JoinKind
from eosframework.topology.graph.node_kinds import OnError as OnError
from eosframework.topology.graph.node_kinds import Operator as Operator
from eosframework.topology.graph.node_kinds import Policy as Policy
from eosframework.topology.spec.batch_spec import Columns
from eosframework.topology.spec.call_spec import CallLimits
from eosframework.topology.spec.keyed_spec import Emit as Emit
from eosframework.topology.spec.keyed_spec import Order as Order
from eosframework.topology.spec.keyed_spec import Window
from eosframework.topology.spec.loaded import KeptName
from eosframework.topology.spec.once_spec import OnceTiming, OnDoubt
from eosframework.txnid import control_topic, ownership_topic


@dataclass(frozen=True, slots=True, eq=False)
class Sink:
    """The end of a stream: a topic, or a function that chooses one for each record.

    Args:
        partitions: with which `apply` creates the topic; None: as the settings say.
        settings: with which `apply` creates the topic, by Kafka's names.
    """

    name: str
    topic: str | Function
    key: Serde
    value: Serde
    on_error: OnError
    partitions: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """The state of a keyed operator; each task has its own partition of it.

    Args:
        name: unique in the application.
        changelog: the compacted topic with every change, from which it can be restored.
        key: serde of its keys, for reading it by key.
        value: serde of its values.
        version: of the values' format.
        upgrade: takes (bytes, version) of an older value.
        window: of the values; None: there is one value for each key.
        ttl_ms: an entry counts as absent once stream time is more than this past its own time;
            None: never.
        declared: its name and where that is stated; None: it belongs to a sub-topology.
    """

    name: str
    changelog: str
    key: Serde
    value: Serde
    version: int = 1
    upgrade: Function | None = None
    window: Window | None = None
    ttl_ms: int | None = None
    declared: KeptName | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """Folds the records of each key into one value, which it keeps in a store.

    Args:
        functions: of the fold, by the names that `FoldKind` gives them.
        children: nodes that receive the key with its aggregate.
    """

    name: str
    stream: str
    fold: FoldKind
    functions: dict[str, Function]
    store: Store
    emit: Emit
    on_error: OnError
    order: Order = Order.ARRIVAL
    """The order of its records after a repartition topic."""
    bound: int | None = None
    """The most members of a value that is a list."""
    of_table: bool = False
    """Its records are changes of a grouped table: it takes back the rows that they replace."""
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True)
class Once:
    """The options of a step whose calls take effect once.

    Args:
        label: the step's name in keys, with that of its stream.
        on_doubt: what happens where it cannot be known whether a call took effect.
        timing: of entries and further attempts.
        look_up: asks the service for the result of an effect.
        key: takes the value; its text is added to keys.
    """

    label: str
    on_doubt: OnDoubt
    timing: OnceTiming
    look_up: Function | None = None
    key: Function | None = None


@dataclass(frozen=True, slots=True)
class Calls:
    """The options of a step that calls a function ahead of the transaction.

    Args:
        limits: of the calls.
        resources: by the name of an argument, the function that opens what calls share.
        shown: the options that were declared, for `describe`.
        once: of a step whose calls take effect once; None: they may repeat.
    """

    limits: CallLimits
    resources: Mapping[str, Function] = field(default_factory=dict[str, Function])
    shown: Mapping[str, object] = field(default_factory=dict[str, object], compare=False)
    once: Once | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operator with its followers.

    Args:
        name: its position in the declaration, for messages: `late.filter(is_late)`.
        stream: the stream it is declared in.
        children: nodes that receive the results of the step; a branch has none here.
        branches: of a branch only: in order, a predicate on the value (None: always true) and
            the nodes that receive the records for which it is the first true predicate.
        columns: of the first batch operator after a source only: the columns that it reads.
        calls: of a step that calls a coroutine only.
    """

    name: str
    stream: str
    operator: Operator
    function: Function
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])
    branches: tuple[tuple[Function | None, list[Node]], ...] = ()
    columns: Columns | None = None
    calls: Calls | None = None

    @property
    def is_batch(self) -> bool:
        """True if its function takes a batch of records."""
        return self.operator in (Operator.MAP_BATCH, Operator.FILTER_BATCH)


@dataclass(frozen=True, slots=True, eq=False)
class Every:
    """The interval at which the wall clock calls a function.

    Args:
        interval_ms: due times are its multiples since the epoch.
        is_once: the task of partition 0 calls it, for the whole application.
    """

    interval_ms: int
    is_once: bool


@dataclass(frozen=True, slots=True, eq=False)
class WallClock:
    """A function of a `process` step that the wall clock calls.

    Args:
        function: takes the time and a context; with timers, the key before them.
        store: the due times.
        every: None: the times are those of timers, which functions set.
    """

    name: str
    stream: str
    function: Function
    store: Store
    every: Every | None
    on_error: OnError

    @property
    def emit(self) -> Emit:
        """CLOSE: the function is called when its time has passed, as a window is closed."""
        return Emit.CLOSE


@dataclass(frozen=True, slots=True, eq=False)
class Processor:
    """Calls a function with each record, the node's stores and its timers.

    Args:
        function: takes the whole record and a context; None: records end here.
        on_timer: takes key, time and the context; None: there are no timers of stream time.
        stores: by the names that the functions use.
        timers: store of pending timers of stream time; None: there are none.
        key: serde of the records' keys.
        order: of its records after a repartition topic.
        wall_clock: the functions that the wall clock calls.
        children: nodes that receive the records that the functions return.
    """

    name: str
    stream: str
    function: Function | None
    on_timer: Function | None
    stores: dict[str, Store]
    timers: Store | None
    key: Serde
    on_error: OnError
    order: Order = Order.ARRIVAL
    wall_clock: tuple[WallClock, ...] = ()
    children: list[Node] = field(default_factory=list["Node"])

    @property
    def all_stores(self) -> tuple[Store, ...]:
        """The stores of its functions, and those with due times."""
        timers = () if self.timers is None else (self.timers,)
        return (*self.stores.values(), *timers, *(clock.store for clock in self.wall_clock))

    @property
    def functions(self) -> dict[str, Function]:
        """Its functions, by their role."""
        found = {"call": self.function, "on_timer": self.on_timer}
        for clock in self.wall_clock:
            found["on_wall_timer" if clock.every is None else "on_every"] = clock.function
        return {role: function for role, function in found.items() if function is not None}

    @property
    def emit(self) -> Emit:
        """CLOSE with timers: like windows, they fire when stream time passes their time."""
        return Emit.EACH if self.timers is None else Emit.CLOSE


@dataclass(frozen=True, slots=True, eq=False)
class GlobalTable:
    """A topic that each process of the application keeps in memory."""

    name: str
    topic: str
    key: Serde
    value: Serde


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Keeps the rows of a topic: for each key its last value, or all values of a period.

    Args:
        row: serde of the rows; without history also of the store.
        history_ms: how long earlier versions of rows are kept; None: current rows only.
        children: nodes that receive the changes of its rows.
    """

    name: str
    stream: str
    store: Store
    row: Serde
    history_ms: int | None
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])

    @property
    def emit(self) -> Emit:
        """Changes are sent on at once."""
        return Emit.EACH


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Rows by key, as a join finds them.

    Args:
        name: of the source or stream, for messages.
        origin: the node that stores the rows.
        steps: filters and maps in order; they run at each lookup.
        key: serde of the keys.
    """

    name: str
    origin: Table | Aggregate | TableJoin | ForeignJoin | GlobalTable
    steps: tuple[tuple[Operator, Function], ...]
    key: Serde

    def then(self, name: str, operator: Operator, function: Function) -> View:
        """Return the view with one more step."""
        return View(name, self.origin, (*self.steps, (operator, function)), self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Joins each record of a stream with the row that a table has for it.

    Args:
        function: takes the value and the row.
        of: takes the record and returns the row's key; None: the record's own key.
        order: of records and rows after a repartition topic.
    """

    name: str
    stream: str
    view: View
    kind: JoinKind
    function: Function
    of: Function | None
    on_error: OnError
    order: Order = Order.ARRIVAL
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class TableJoin:
    """A table whose rows are computed from the rows of two others.

    Args:
        function: takes the left and the right row.
        children: nodes that receive the changes of its rows.
    """

    name: str
    stream: str
    left: View
    right: View
    kind: JoinKind
    function: Function
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class Subscribe:
    """Sends the rows of a table on, and subscribes each to the row of its foreign key (ADR 41).

    Args:
        view: the rows.
        of: takes the record of a row and returns the foreign key.
        other: name of the other table, for messages.
        store: the foreign key and the version of each row's subscription.
        key: serde of the keys.
        foreign: serde of the other table's keys.
        row: serde of the rows in the topic of rows.
        children: nodes that receive the rows.
        subscriptions: nodes that receive the subscriptions, under the foreign key.
    """

    name: str
    stream: str
    view: View
    of: Function
    other: str
    store: Store
    key: Serde
    foreign: Serde
    row: Serde
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])
    subscriptions: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers subscriptions with rows of a table: at once, and whenever a row changes (ADR 41).

    Args:
        rows: the rows.
        store: the subscriptions, by foreign key.
        key: serde of the keys of the rows that subscribed.
        row: serde of the rows in the topic of answers.
        children: nodes that receive the answers, under the key of the row that subscribed.
    """

    name: str
    stream: str
    rows: View
    store: Store
    key: Serde
    row: Serde
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class ForeignJoin:
    """A table of rows, each joined with the answer to its subscription (ADR 41).

    Args:
        function: takes the left and the right row.
        store: both rows of each key, with the version of the subscription.
        key: serde of the keys.
        rows: serdes of the left and the right rows.
        children: nodes that receive the changes of its rows.
    """

    name: str
    stream: str
    kind: JoinKind
    function: Function
    store: Store
    key: Serde
    rows: tuple[Serde, Serde]
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class TableGroup:
    """Sends the changes of a table's rows to the groups that the rows belong to.

    Args:
        view: the table.
        function: takes a row as a whole record, and returns the key of its group.
        key: serde of these keys.
        topic: the repartition topic.
        children: the sink that writes it; it receives the key of a group with a `Change`.
    """

    name: str
    stream: str
    view: View
    function: Function
    key: Serde
    topic: str
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class StreamJoin:
    """Joins records of two streams whose times are close.

    Args:
        function: takes the left and the right value.
        store: buffer for records, of bytes.
        key: serde of the keys.
        values: serdes of the left and the right values.
        before_ms: how much earlier than a left record a right one may be.
        after_ms: how much later.
        grace_ms: how long after the end of an interval late records are accepted.
        late: topic for records that arrive after their interval and its grace are over.
    """

    name: str
    stream: str
    kind: JoinKind
    function: Function
    store: Store
    key: Serde
    values: tuple[Serde, Serde]
    before_ms: int
    after_ms: int
    grace_ms: int
    on_error: OnError
    late: str | None = None
    children: list[Node] = field(default_factory=list["Node"])

    @property
    def keeps_unpaired(self) -> tuple[bool, bool]:
        """True, for left and right, if a record without a match has a result."""
        return self.kind is not JoinKind.INNER, self.kind is JoinKind.OUTER

    @property
    def emit(self) -> Emit:
        """CLOSE if records without a match have results once their interval is over."""
        return Emit.EACH if self.kind is JoinKind.INNER else Emit.CLOSE


@dataclass(frozen=True, slots=True, eq=False)
class JoinSide:
    """One of the two inputs of a join; it follows the node whose records or changes it takes."""

    join: Join
    is_left: bool

    @property
    def name(self) -> str:
        """Name of the side in messages."""
        return f"{self.join.name}, {'left' if self.is_left else 'right'}"

    @property
    def stream(self) -> str:
        """The stream that the join is declared in."""
        return self.join.stream

    @property
    def on_error(self) -> OnError:
        """The policy of the join."""
        return self.join.on_error

    @property
    def children(self) -> list[Node]:
        """Nodes that receive the results of either side."""
        return self.join.children


@dataclass(frozen=True, slots=True, eq=False)
class Reorder:
    """Holds the records of a sub-topology, and runs them in the order of a backfill.

    Args:
        stream: the sub-topology.
        store: held records, of bytes.
        followers: by source topic, the children of the source that get its records in order.
        on_error: for records beyond the limit.
    """

    name: str
    stream: str
    store: Store
    followers: dict[str, tuple[Node, ...]]
    on_error: OnError

    @property
    def emit(self) -> Emit:
        """Records are released when stream time passes them."""
        return Emit.CLOSE


@dataclass(frozen=True, slots=True, eq=False)
class TableOutput:
    """The end of a stream at tables that are written in the decision of its transaction.

    Args:
        tables: its topic is the name of these rows among the outputs of a task; no broker has it.
    """

    name: str
    stream: str
    tables: TableSink
    on_error: OnError


Node = (
    Step
    | Sink
    | TableOutput
    | Aggregate
    | Processor
    | Table
    | TableGroup
    | Lookup
    | JoinSide
    | Subscribe
)
"""A node that can follow a source or a step."""

Join = TableJoin | StreamJoin | Answers | ForeignJoin
"""A node with two inputs, each a `JoinSide`."""

Keyed = Aggregate | Processor | WallClock | Table | Lookup | Subscribe | Join | View | Reorder
"""A node or view that uses the stores of a task."""


@dataclass(frozen=True, slots=True)
class RetryOf:
    """The role of an internal topic from which failed records are processed another time.

    Args:
        topic: the source that the records came from.
        delay_ms: delay of each record; None: dead letters that are replayed without delay.
    """

    topic: str
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A topic that is read, and the nodes that receive each of its records.

    Args:
        timestamp: takes the decoded value and returns the event time, as milliseconds since
            the epoch or a datetime; None: the record's timestamp.
        on_error: for records that cannot be decoded.
        retry_of: of an internal topic for retries or replays; None: a declared source, or a
            repartition topic.
        ahead_ms: by how many milliseconds the event time that a function returns may be later
            than the record's own timestamp; None: no limit.
    """

    name: str
    topic: str
    key: Serde
    value: Serde
    timestamp: Function | None
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])
    retry_of: RetryOf | None = None
    ahead_ms: int | None = None

    @property
    def is_table(self) -> bool:
        """True if its records are rows of a table."""
        return any(isinstance(child, Table) for child in self.children)


class TableMode(StrEnum):
    """The way rows are written to a table."""

    APPEND = "append"
    UPSERT = "upsert"
    UPSERT_DELETE = "upsert_delete"


@dataclass(frozen=True, slots=True, eq=False)
class SinkTable:
    """A database table that a stream is written to.

    Args:
        table: its name, with a schema before a dot if one was given.
        keys: columns that identify a row; empty if rows are appended.
        row: takes the whole record and returns a row, a list of rows or None; None: the value.
        model: pydantic model with the columns, if one is known.
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
class TableSink:
    """A table sink: writes a topic's records to tables, one task per partition.

    Args:
        tables: all written in one database transaction per record.
        on_error: for records that cannot be decoded.
        sub_topology: the writer of an internal topic, which has a partition for each task of
            the writer. None: the topic is a source of the user.
    """

    name: str
    topic: str
    key: Serde
    value: Serde
    tables: tuple[SinkTable, ...]
    on_error: Policy
    sub_topology: str | None = None


@dataclass(frozen=True, slots=True)
class SubTopology:
    """Streams connected without a repartition topic; one task for each partition of its sources."""

    name: str
    sources: tuple[Source, ...]
    sink_topics: tuple[str, ...]
    """Output topics with fixed names, sorted, dead-letter topics included."""
    dynamic_sinks: tuple[str, ...] = ()
    """Names of the sinks that choose a topic for each record."""
    stores: tuple[Store, ...] = ()
    """State of its tasks."""
    reorder: Reorder | None = None
    """The step that holds records whose order matters; None: no order matters."""
    together: tuple[TableSink, ...] = ()
    """Tables that are written in the decisions of its transactions."""
    effects_topic: str | None = None
    """The journal of its effects outside of Kafka; None: no step has any."""
    matched_by: str | None = None
    """The pattern that its only topic matches; None: its topics are stated."""

    @property
    def topics(self) -> list[str]:
        """Topics that it reads."""
        return [source.topic for source in self.sources]


@dataclass(frozen=True, slots=True)
class SourcePattern:
    """A source whose topics a regular expression matches.

    Args:
        source: its name.
        pattern: matched with the whole name of a topic.
        part: the sub-topology that each of its topics gets, with the pattern's source alone.
    """

    source: str
    pattern: str
    part: SubTopology


@dataclass(frozen=True, slots=True)
class Repartition:
    """An internal topic through which records reach the task of their new key.

    Args:
        topic: its name.
        writer: sub-topology that writes it.
        partitions: None: as many as its writer has tasks.
        retry_of: its role, if the writer reads it itself, for retries or replays.
        declared: its name and where that is stated; None: it is for retries or replays.
        follows: it has as many partitions as the other topics of its readers.
    """

    topic: str
    writer: str
    partitions: int | None = None
    retry_of: RetryOf | None = None
    declared: KeptName | None = None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole application."""

    application: str
    sub_topologies: tuple[SubTopology, ...]
    table_sinks: tuple[TableSink, ...] = ()
    repartitions: tuple[Repartition, ...] = ()
    global_tables: tuple[GlobalTable, ...] = ()
    codecs: tuple[Codec, ...] = ()
    """Codecs that must be bound to a schema registry before the first record is processed."""
    patterns: tuple[SourcePattern, ...] = ()
    """Sources by pattern; `sub_topologies` has a part for each topic that one of them matches."""

    @property
    def matched_topics(self) -> dict[str, str]:
        """The pattern of each topic that is read because it matches one."""
        parts = (part for part in self.sub_topologies if part.matched_by is not None)
        return {part.sources[0].topic: f"{part.matched_by}" for part in parts}

    @property
    def all_parts(self) -> tuple[SubTopology, ...]:
        """All sub-topologies, and those of patterns that no topic need match."""
        return (*self.sub_topologies, *(one.part for one in self.patterns))

    def sub_topology(self, name: str) -> SubTopology:
        """Return the sub-topology named `name`; it must exist."""
        return next(part for part in self.sub_topologies if part.name == name)

    def with_times_within(self, seconds: float | None, trusted: Collection[str] = ()) -> Graph:
        """Return the same application with a limit for event times; see `Source.ahead_ms`.

        Args:
            seconds: that an event time may be later than its record's own timestamp; None: no
                limit.
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
    def sources(self) -> list[Source]:
        """Sources of all sub-topologies."""
        return [source for part in self.sub_topologies for source in part.sources]

    @property
    def stores(self) -> list[Store]:
        """Stores of all sub-topologies."""
        return [store for part in self.sub_topologies for store in part.stores]

    @property
    def readers(self) -> dict[str, SubTopology]:
        """The sub-topology that reads each source topic."""
        return {source.topic: part for part in self.sub_topologies for source in part.sources}

    @property
    def source_topics(self) -> list[str]:
        """Topics that the application reads, sorted."""
        return sorted({source.topic for source in self.sources})

    @property
    def sink_topics(self) -> list[str]:
        """Sink topics that the topology names, dead letters included, sorted."""
        return sorted({topic for part in self.all_parts for topic in part.sink_topics})

    @property
    def changelog_topics(self) -> list[str]:
        """Changelogs of all stores, sorted."""
        return sorted(store.changelog for store in self.stores)

    @property
    def repartition_topics(self) -> frozenset[str]:
        """Topics through which the application sends records to itself."""
        return frozenset(repartition.topic for repartition in self.repartitions)

    @property
    def effects_topics(self) -> list[str]:
        """Journals of effects outside of Kafka, sorted."""
        return sorted(p.effects_topic for p in self.sub_topologies if p.effects_topic is not None)

    @property
    def written_topics(self) -> list[str]:
        """All topics that the application writes and that are known by name, sorted."""
        own = {*self.changelog_topics, *self.repartition_topics, *self.effects_topics}
        return sorted(own.union(self.sink_topics))

    @property
    def together(self) -> list[TableSink]:
        """Tables that are written in the decisions of the transforms."""
        return [table for part in self.sub_topologies for table in part.together]

    @property
    def all_tables(self) -> list[TableSink]:
        """All tables that the application writes, by a table writer or together with outputs."""
        return [*self.table_sinks, *self.together]

    @property
    def table_sink_topics(self) -> list[str]:
        """Topics of table sinks, sorted; some are internal, some are sources."""
        return sorted(table_sink.topic for table_sink in self.table_sinks)

    @property
    def global_topics(self) -> list[str]:
        """Topics that every process reads whole, sorted."""
        return sorted({table.topic for table in self.global_tables})

    @property
    def whole_topics(self) -> frozenset[str]:
        """Topics that are read from their beginning, wherever the application starts.

        A table needs all of its rows, and an application must read all records that it sent to
        itself.
        """
        tables = (
            source.topic
            for source in self.sources
            if any(isinstance(child, Table) for child in source.children)
        )
        return self.repartition_topics.union(tables)

    @property
    def rows_topics(self) -> frozenset[str]:
        """Internal topics between transformed streams and their table sinks."""
        return frozenset(sink.topic for sink in self.table_sinks if sink.sub_topology is not None)

    @property
    def internal_topics(self) -> frozenset[str]:
        """Topics that only the application may write: a foreign record would corrupt its state."""
        retries = {source.topic for source in self.sources if source.retry_of is not None}
        names = {control_topic(self.application), ownership_topic(self.application)}
        own = {*names, *self.changelog_topics, *self.effects_topics, *retries}
        return self.repartition_topics.union(own)
