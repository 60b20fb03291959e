"""The record of a topology: the facts that its state, tasks and repartition topics depend on.

A later topology reads the bytes that this one left in stores and topics. So the record has serdes
by the format that they write (every pydantic model writes JSON), and functions by name: a name
belongs to the step with these functions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydantic import TypeAdapter

from eosframework.serialization.references import identity_of
from eosframework.serialization.serdes import Serde
from eosframework.topology.evolution.followed_tables import (
    filters_shown,
    followed_tables,
    steps_shown,
)
from eosframework.topology.graph.graph import (
    Aggregate,
    Answers,
    FoldKind,
    ForeignJoin,
    Function,
    Graph,
    JoinSide,
    Lookup,
    Operator,
    Order,
    Processor,
    Reorder,
    Sink,
    Source,
    Step,
    Store,
    StreamJoin,
    Subscribe,
    SubTopology,
    Table,
    TableGroup,
    TableJoin,
    TableOutput,
    View,
)
from eosframework.topology.graph.node_kinds import input_number
from eosframework.topology.graph.patterns import with_patterns_shown
from eosframework.topology.graph.timed_topics import time_store_of
from eosframework.topology.graph.walk import (
    AnyNode,
    followers_of,
    nodes_after,
    nodes_of,
    stores_viewed,
)
from eosframework.topology.spec.keyed_spec import short

Functions = Mapping[str, str]
"""Identities of the functions of a step by their roles; `key` made the keys of its records."""

_NEW_KEY = (Operator.SELECT_KEY, Operator.MAP, Operator.FLAT_MAP, Operator.PROCESS)


@dataclass(frozen=True, slots=True)
class KeyFunctions:
    """The functions that made the keys of records, by store and by repartition topic."""

    stores: Mapping[str, set[str]] = field(default_factory=dict[str, set[str]])
    topics: Mapping[str, set[str]] = field(default_factory=dict[str, set[str]])


def key_functions(graph: Graph) -> KeyFunctions:
    """Return the functions that made the keys of each store and repartition topic."""
    stores: dict[str, set[str]] = {store.name: set() for store in graph.stores}
    topics: dict[str, set[str]] = {topic: set() for topic in graph.repartition_topics}
    known = -1
    while known < (known := sum(map(len, topics.values()))):
        for part in graph.sub_topologies:
            for node, keys in _along(part, topics):
                if isinstance(node, Sink) and isinstance(node.topic, str) and node.topic in topics:
                    topics[node.topic] |= keys
                for name in _stores_of(node):
                    stores[name] |= keys
    return KeyFunctions(stores, topics)


def functions_of(functions: Mapping[str, Function], keys: set[str]) -> Functions:
    """Return the identities of functions, with those that made the keys."""
    named = {role: identity(function) for role, function in functions.items()}
    return {**named, "key": " and ".join(sorted(keys))} if keys else named


def identity(function: Function) -> str:
    """Return a text that stays equal while a function does."""
    return identity_of(function.name, function.call)


def same_functions(one: Functions, other: Functions) -> bool:
    """Return whether two steps have the same functions.

    A program that is started as a script has its own functions in `__main__`.
    """
    return one.keys() == other.keys() and all(_same(one[role], other[role]) for role in one)


def _same(one: str, other: str) -> bool:
    if one != other and "__main__" in (one.partition(":")[0], other.partition(":")[0]):
        return one.partition(":")[2] == other.partition(":")[2]
    return one == other


def _along(
    part: SubTopology, topics: Mapping[str, set[str]]
) -> Iterator[tuple[AnyNode, frozenset[str]]]:
    """Yield each node with the functions that made the keys of its records."""
    todo: list[tuple[AnyNode, frozenset[str]]] = [
        (source, frozenset(topics.get(source.topic, ()))) for source in part.sources
    ]
    seen: set[tuple[int, frozenset[str]]] = set()
    while todo:
        node, keys = todo.pop()
        if (id(node), keys) in seen:
            continue
        seen.add((id(node), keys))
        yield node, keys
        if isinstance(node, Processor):
            keys = frozenset({identity(next(iter(node.functions.values())))})
        elif isinstance(node, TableGroup) or (isinstance(node, Step) and node.operator in _NEW_KEY):
            keys = frozenset({identity(node.function)})
        elif isinstance(node, Subscribe):
            made = frozenset({identity(node.of)})
            todo += [(child, made) for child in node.subscriptions]
            todo += [(child, keys) for child in node.children]
            continue
        elif isinstance(node, JoinSide) and isinstance(node.join, Answers):
            keys = frozenset[str]()
        todo += [(child, keys) for _, child in followers_of(node)]


def _stores_of(node: AnyNode) -> list[str]:
    match node:
        case Aggregate():
            return [node.store.name]
        case Processor():
            return [store.name for store in node.all_stores]
        case Subscribe():
            return [node.store.name]
        case JoinSide(join=StreamJoin() | Answers() | ForeignJoin() as join):
            return [join.store.name]
        case _:
            return []


VERSION = 2
"""Version of the record's format; a record of another version is ignored."""

WATERMARKS = "watermarks"
"""The kind of the stores with the times of upstream tasks, which no step declares."""

TABLES = ("table", "table with history")
"""The kinds of the stores of table sources, without and with earlier versions of rows."""

_OF_A_TABLE = " of a table"
"""Part of the kinds of aggregates of grouped tables."""

SUBSCRIPTIONS = "subscriptions"
"""The kind of the store of a foreign-key join with the foreign keys of left rows."""

SUBSCRIBERS = "subscribers"
"""The kind of the store of a foreign-key join with the left rows of each foreign key."""

FOREIGN_JOIN = "foreign-key join"
"""The kind of the store of a foreign-key join with both rows."""

HELD_RECORDS = "held records"
"""The kind of the stores of reorder steps, which no step declares."""

_INDEX = re.compile(r"\.steps\[\d+\] ")


@dataclass(frozen=True, slots=True)
class RecordedStore:
    """The facts that determine the content of a store.

    Args:
        sub_topology: of its tasks.
        topics: that these tasks read.
        changelog_id: topic id of its changelog; empty: the topic does not exist.
        kind: of the operator.
        key: format of its keys.
        value: format of its values.
        version: of the values.
        window: signature of its windows; None: there are no windows.
        removed: a later topology ran without it, so it may lack changes.
        branches: of a reorder step, the steps that follow its sources; true: they get its records,
            false: they get each record at once.
        functions: that have made its values and keys, the last ones last; none of a table.
        follows: stores with the rows that it has taken, of a step that follows a table.
    """

    sub_topology: str
    topics: tuple[str, ...]
    changelog_id: str
    kind: str
    key: str
    value: str
    version: int = 1
    window: str | None = None
    removed: bool = False
    branches: Mapping[str, bool] = field(default_factory=dict[str, bool])
    functions: tuple[Functions, ...] = ()
    follows: tuple[str, ...] = ()

    def has(self, functions: Functions) -> bool:
        """Return whether a step with these functions has made its values."""
        return any(same_functions(functions, known) for known in self.functions)

    def made_by(self, other: RecordedStore) -> RecordedStore:
        """Return the store with the functions of another record of it as well."""
        if self.changelog_id != other.changelog_id:
            return self
        added = tuple(made for made in self.functions if not other.has(made))
        return replace(self, functions=(*other.functions, *added))

    @property
    def is_grouped(self) -> bool:
        """True if it takes back the rows of a table that were added before."""
        return _OF_A_TABLE in self.kind

    @property
    def takes_rows(self) -> bool:
        """True if rows of a table that it has taken stay in it until a change takes them back."""
        return self.is_grouped or self.kind in (SUBSCRIPTIONS, SUBSCRIBERS, FOREIGN_JOIN)

    @property
    def holder(self) -> str:
        """The kind of its owner: `table`, `join`, `group` of a table, or empty for other steps."""
        if self.kind in TABLES:
            return "table"
        if self.is_grouped:
            return "group"
        return "join" if self.kind.endswith(" join") else ""


@dataclass(frozen=True, slots=True)
class RecordedRepartition:
    """A repartition topic.

    Args:
        partitions: as declared; None: as many as its writer has tasks.
        made_by: the functions that make the keys.
    """

    key: str
    value: str
    partitions: int | None = None
    made_by: str = ""


@dataclass(frozen=True, slots=True)
class RecordedPart:
    """A sub-topology.

    Args:
        sources: topics that it reads.
        sinks: topics that it names and writes.
        steps: a text for each of its nodes, sorted.
    """

    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedTopology:
    """The record of a topology, by the names of its parts."""

    parts: Mapping[str, RecordedPart] = field(default_factory=dict[str, RecordedPart])
    stores: Mapping[str, RecordedStore] = field(default_factory=dict[str, RecordedStore])
    repartitions: Mapping[str, RecordedRepartition] = field(
        default_factory=dict[str, RecordedRepartition]
    )

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any] | None) -> RecordedTopology | None:
        """Return the topology of an entry; None: there is none, or its version is unknown."""
        if entry is None or entry.get("version") != VERSION:
            return None
        return _ENTRIES.validate_python({field.name: entry[field.name] for field in fields(cls)})

    def to_entry(self) -> dict[str, Any]:
        """Return the entry that `from_entry` reads."""
        return {"version": VERSION, **_ENTRIES.dump_python(self, mode="json")}

    def after(self, before: RecordedTopology | None) -> RecordedTopology:
        """Return the record once this topology has run: also with the stores that it lacks."""
        if before is None:
            return self
        gone = {
            name: replace(store, removed=True)
            for name, store in before.stores.items()
            if name not in self.stores
        }
        stores = {
            name: store.made_by(before.stores[name]) if name in before.stores else store
            for name, store in self.stores.items()
        }
        return replace(self, stores={**gone, **stores})

    def accepting(self, now: RecordedTopology, gone: Collection[str]) -> RecordedTopology:
        """Return this record with the functions of another topology, and without some stores.

        Args:
            now: the topology whose functions continue with the stores.
            gone: stores that it may lack.
        """
        stores = {
            name: replace(store, removed=True)
            if name in gone
            else replace(store, functions=now.stores[name].made_by(store).functions)
            if name in now.stores
            else store
            for name, store in self.stores.items()
        }
        return replace(self, stores=stores)


_ENTRIES = TypeAdapter(RecordedTopology)
"""Converts entries; fields that a later version added are ignored."""


def recorded(graph: Graph, topic_ids: Mapping[str, str]) -> RecordedTopology:
    """Return the record of a graph.

    Args:
        graph: of the application.
        topic_ids: of its changelogs that exist.
    """
    # Not the topics that patterns match: which there are is no change of the topology.
    graph = with_patterns_shown(graph)
    own = {repartition.topic: repartition.partitions for repartition in graph.repartitions}
    keys, tables = key_functions(graph), followed_tables(graph)
    return RecordedTopology(
        {part.name: _part(part) for part in graph.sub_topologies},
        {
            name: store
            for part in graph.sub_topologies
            for name, store in _stores(part, topic_ids, keys, tables).items()
        },
        {
            source.topic: RecordedRepartition(
                _form(source.key),
                _form(source.value),
                own[source.topic],
                " and ".join(sorted(keys.topics[source.topic])),
            )
            for source in graph.sources
            if source.topic in own
        },
    )


def _part(part: SubTopology) -> RecordedPart:
    return RecordedPart(
        tuple(sorted(source.topic for source in part.sources)),
        part.sink_topics,
        tuple(sorted({text for node in nodes_of(part) for text in _texts(node)})),
    )


def _texts(node: AnyNode) -> Iterator[str]:
    """Describe a node, without its position among others."""
    policy = f", on error {node.on_error.policy}" + (
        f" {node.on_error.topic}" if node.on_error.topic else ""
    )
    name = _INDEX.sub(": ", node.name)
    match node:
        case Source():
            time = f", timestamp {node.timestamp.name}" if node.timestamp else ""
            yield f"source {node.topic} ({node.key.name}, {node.value.name}{time}){policy}"
        case Sink():
            yield f"{name} ({node.key.name}, {node.value.name}){policy}"
        case TableOutput():
            yield f"{name}, together with the outputs{policy}"
        case Aggregate():
            yield f"{name}, emit {node.emit}{_ordered(node.order)}{_lasting(node.store)}{policy}"
        case JoinSide(join=Answers()):
            yield f"{name}{policy}"
        case JoinSide(join=TableJoin() | StreamJoin() | ForeignJoin() as join):
            yield f"{name}, {join.kind}, {join.function.name}{policy}"
        case Lookup() | Processor():
            yield f"{name}{_ordered(node.order)}{policy}"
        case _:
            yield f"{name}{policy}"


def _ordered(order: Order) -> str:
    return ", in order" if order is Order.TIME else ""


def _lasting(store: Store) -> str:
    """Describe the parts of a store's windows and times that may change safely."""
    window, found = store.window, list[str]()
    if window is not None and window.is_timed:
        found.append(f"grace {short(window.grace_ms)}")
        if window.close_idle_ms is not None:
            found.append(f"closed when idle for {short(window.close_idle_ms)}")
        if window.late is not None:
            found.append(f"late to {window.late}")
    if store.ttl_ms is not None:
        found.append(f"ttl {short(store.ttl_ms)}")
    return "".join(f", {text}" for text in found)


def _stores(
    part: SubTopology,
    topic_ids: Mapping[str, str],
    keys: KeyFunctions,
    tables: Mapping[str, Sequence[View]],
) -> dict[str, RecordedStore]:
    topics = tuple(sorted(source.topic for source in part.sources))
    times = time_store_of(part)
    own = [] if times is None else [_Kept(times, WATERMARKS, times.key, _form(times.value))]
    if part.reorder is not None:
        held, branches = part.reorder.store, _branches(part, part.reorder)
        own.append(
            _Kept(held, HELD_RECORDS, held.key, _form(held.value), branches=branches),
        )
    inputs = _inputs(part)
    kept_by_nodes = (kept for node in nodes_of(part) for kept in _kept(node, inputs))
    return {
        kept.store.name: RecordedStore(
            sub_topology=part.name,
            topics=topics if kept.topic is None else (kept.topic,),
            changelog_id=topic_ids.get(kept.store.changelog, ""),
            kind=kept.kind,
            key=_form(kept.key),
            value=kept.value,
            version=kept.store.version,
            window=kept.window,
            branches=kept.branches,
            functions=()
            if kept.functions is None
            else (_made_by(kept, kept.functions, keys, tables.get(kept.store.name, ())),),
            follows=_followed(tables.get(kept.store.name, ())),
        )
        for kept in (*kept_by_nodes, *own)
    }


def _made_by(
    kept: _Kept, functions: Mapping[str, Function], keys: KeyFunctions, tables: Sequence[View]
) -> Functions:
    """Return the functions of a store, with those that make the rows of a table that it follows.

    A foreign-key join keeps the rows that it has taken, so only filters can leave one in it.
    """
    found = functions_of(functions, keys.stores[kept.store.name])
    shown = steps_shown if _OF_A_TABLE in kept.kind else filters_shown
    rows = [step for view in tables for step in shown(view)]
    return {**found, **{f"row {i} {step}": identity(one) for i, (step, one) in enumerate(rows, 1)}}


def _inputs(part: SubTopology) -> Mapping[str, Mapping[int, str]]:
    """Return by store of a `cogroup` the topics of each of its inputs, by number.

    The order of inputs is none of the store's facts, but the topics that a function is for are.
    """
    found: dict[str, dict[int, str]] = {}
    for source in sorted(part.sources, key=lambda source: source.topic):
        for node in nodes_after(source):
            if not isinstance(node, Step) or (number := input_number(node.function.call)) is None:
                continue
            for child in node.children:
                if isinstance(child, Aggregate):
                    topics = found.setdefault(child.store.name, {})
                    topics[number] = " and ".join(filter(None, (topics.get(number), source.topic)))
    return found


def _by_input(functions: Mapping[str, Function], topics: Mapping[int, str]) -> dict[str, Function]:
    """Return the functions of a `cogroup` by the topics of their inputs."""
    named, seen = dict(functions), list[str]()
    for number, of in sorted(topics.items()):
        nth = "" if of not in seen else f", input {seen.count(of) + 1}"
        seen.append(of)
        named[f"add of {of}{nth}"] = named.pop(f"add {number}")
    return named


def _followed(tables: Sequence[View]) -> tuple[str, ...]:
    return tuple(sorted({store.name for view in tables for store in stores_viewed(view)}))


def _branches(part: SubTopology, reorder: Reorder) -> dict[str, bool]:
    """Return for each step after a source whether the reorder step gives it the records."""
    return {
        f"{source.topic}: {_INDEX.sub(': ', child.name)}": child
        in reorder.followers.get(source.topic, ())
        for source in part.sources
        for child in source.children
    }


@dataclass(frozen=True, slots=True)
class _Kept:
    """A store with the facts that its node knows; `topic` holds its rows, if it is a table.

    Args:
        functions: that make its values; None: they are those of a topic.
    """

    store: Store
    kind: str
    key: Serde
    value: str
    window: str | None = None
    topic: str | None = None
    branches: Mapping[str, bool] = field(default_factory=dict[str, bool])
    functions: Mapping[str, Function] | None = None


def _kept(node: AnyNode, inputs: Mapping[str, Mapping[int, str]]) -> Iterator[_Kept]:
    match node:
        case Source():
            for table in (child for child in node.children if isinstance(child, Table)):
                kind = TABLES[table.history_ms is not None]
                form = _form(table.row)
                yield _Kept(table.store, kind, node.key, form, topic=node.topic)
        case Aggregate(store=store):
            window = None if store.window is None else store.window.signature
            if store.window is not None and store.window.is_timed:
                window = f"{window} ms"
            form = _form(store.value)
            made_by = _by_input(node.functions, inputs.get(store.name, {}))
            kind = f"{node.fold}{_OF_A_TABLE}" if node.of_table else str(node.fold)
            if node.fold in (FoldKind.TOP, FoldKind.BOTTOM):
                # A list of five values cannot become one of ten: the others were not kept.
                kind = f"{kind} {node.bound}"
            yield _Kept(store, kind, store.key, form, window, functions=made_by)
        case Processor():
            for store in node.all_stores:
                kind, form = _kind_of(node, store), _form(store.value)
                yield _Kept(store, kind, store.key, form, functions=node.functions)
        case JoinSide(join=StreamJoin() as join):
            sides = " and ".join(map(_form, join.values))
            within = f"-{join.before_ms}/+{join.after_ms}/{join.grace_ms} ms"
            made_by = {"by": join.function}
            yield _Kept(join.store, f"{join.kind} join", join.key, sides, within, functions=made_by)
        case Subscribe(store=store):
            yield _Kept(
                store, SUBSCRIPTIONS, node.key, _form(node.foreign), functions={"of": node.of}
            )
        case JoinSide(join=Answers() as join, is_left=True):
            form = _form(join.key)
            yield _Kept(join.store, SUBSCRIBERS, join.rows.key, form, functions={})
        case JoinSide(join=ForeignJoin() as join, is_left=True):
            rows = " and ".join(map(_form, join.rows))
            made_by = {f"{join.kind} join": join.function}
            yield _Kept(join.store, FOREIGN_JOIN, join.key, rows, functions=made_by)
        case _:
            pass


def _kind_of(node: Processor, store: Store) -> str:
    if store is node.timers:
        return "timers"
    found = next((clock for clock in node.wall_clock if clock.store is store), None)
    if found is None:
        return "process"
    return "wall timers" if found.every is None else "every"


def _form(serde: Serde) -> str:
    plain = serde.model is not None and serde.codec is None
    return "json" if plain else serde.name
