"""Descriptions of a graph: as data, as text, as a mermaid diagram."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from eosframework.topology.graph.graph import (
    Aggregate,
    Answers,
    ForeignJoin,
    Function,
    GlobalTable,
    Graph,
    JoinSide,
    Lookup,
    OnError,
    Processor,
    Sink,
    SinkTable,
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
    TableSink,
)
from eosframework.topology.graph.patterns import matched_by_pattern, with_patterns_shown
from eosframework.topology.graph.walk import AnyNode, dead_letter_topics, followers_of, nodes_of
from eosframework.topology.spec.keyed_spec import Window, WindowKind, short
from eosframework.txnid import co_partitioned, control_topic, prefix, tasks


class BoxKind(StrEnum):
    """Kinds of boxes."""

    STEP = "step"
    TOPIC = "topic"
    INTERNAL_TOPIC = "internal topic"
    DEAD_LETTERS = "dead letters"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Box:
    """A step, a topic or a table.

    Args:
        id: short and unique in the diagram.
        label: for display.
        sub_topology: of a step; None: of a topic or a table.
        topic: that the box shows, or that the step reads or writes; None: none, or one chosen for
            each record.
        stores: names of the stores that a step keeps.
        node: of a step; None: of a topic or a table.
    """

    id: str
    kind: BoxKind
    label: str
    sub_topology: str | None = None
    topic: str | None = None
    stores: tuple[str, ...] = ()
    node: AnyNode | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Arrow:
    """The way of records between two boxes.

    Args:
        source: id of a box.
        target: id of a box.
        label: a predicate, `rows`, `late` or `on error`; empty: every record.
        is_side: not the way of a record that is processed normally.
    """

    source: str
    target: str
    label: str = ""
    is_side: bool = False


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes and arrows; steps first, then topics, then tables.

    Args:
        parts: names of the sub-topologies.
    """

    parts: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def draw(graph: Graph) -> Diagram:
    """Return the diagram of a graph."""
    graph = with_patterns_shown(graph)
    drawing = _Drawing(graph)
    for part in graph.sub_topologies:
        drawing.add_part(part)
    drawing.add_tables()
    boxes = (*drawing.steps, *drawing.topics.values(), *drawing.tables.values())
    return Diagram(tuple(p.name for p in graph.sub_topologies), boxes, tuple(drawing.arrows))


def _target_of(sink: Sink) -> str:
    """Return the topic that a sink writes, as text."""
    if isinstance(sink.topic, Function):
        return f"a topic chosen by {sink.topic.name}"
    return sink.topic


@dataclass(slots=True)
class _Drawing:
    graph: Graph
    steps: list[Box] = field(default_factory=list[Box])
    topics: dict[str, Box] = field(default_factory=dict[str, Box])
    tables: dict[str, Box] = field(default_factory=dict[str, Box])
    arrows: list[Arrow] = field(default_factory=list[Arrow])
    _ids: dict[int, str] = field(default_factory=dict[int, str])

    def add_part(self, part: SubTopology) -> None:
        for node in nodes_of(part):
            topic = node.topic if isinstance(node, Source | Sink) else None
            self.steps.append(
                Box(
                    self._id(node),
                    BoxKind.STEP,
                    _label(node),
                    part.name,
                    topic if isinstance(topic, str) else None,
                    _stores(node),
                    node,
                )
            )
            self._add_arrows(node)

    def add_tables(self) -> None:
        for table_sink in self.graph.table_sinks:
            for table in table_sink.tables:
                box = self._table(table, table_sink.topic)
                self.arrows.append(Arrow(self._topic(table_sink.topic), box))

    def _table(self, table: SinkTable, topic: str | None) -> str:
        box = Box(f"d{len(self.tables)}", BoxKind.TABLE, table.table, None, topic)
        return self.tables.setdefault(table.table, box).id

    def _add_arrows(self, node: AnyNode) -> None:
        own = self._id(node)
        if isinstance(node, Source):
            self.arrows.append(Arrow(self._topic(node.topic), own))
        if isinstance(node, Sink):
            self.arrows.append(Arrow(own, self._topic(_target_of(node))))
        if isinstance(node, TableOutput):
            tables = node.tables.tables
            self.arrows += [Arrow(own, self._table(table, None)) for table in tables]
        for label, child in followers_of(node):
            self.arrows.append(Arrow(own, self._id(child), label))
        self.arrows.extend(self._side_arrows(node, own))

    def _side_arrows(self, node: AnyNode, own: str) -> Iterator[Arrow]:
        if isinstance(node, Lookup):
            match node.view.origin:
                case GlobalTable() as table:
                    yield Arrow(self._topic(table.topic), own, "rows", is_side=True)
                case Table() | Aggregate() as table:
                    yield Arrow(self._id(table), own, "rows", is_side=True)
                case _:
                    pass
        if (late := _late_topic(node)) is not None:
            yield Arrow(own, self._topic(late), "late", is_side=True)
        if node.on_error.topic is not None and not isinstance(node, Sink | TableOutput):
            yield Arrow(own, self._topic(node.on_error.topic), "on error", is_side=True)

    def _id(self, node: object) -> str:
        return self._ids.setdefault(id(node), f"n{len(self._ids)}")

    def _topic(self, name: str) -> str:
        box = self.topics.get(name)
        if box is None:
            box = Box(f"t{len(self.topics)}", self._kind(name), name, topic=name)
            self.topics[name] = box
        return box.id

    def _kind(self, name: str) -> BoxKind:
        if any(repartition.topic == name for repartition in self.graph.repartitions):
            return BoxKind.INTERNAL_TOPIC
        is_dead = name in dead_letter_topics(self.graph)
        return BoxKind.DEAD_LETTERS if is_dead else BoxKind.TOPIC


def _label(node: AnyNode) -> str:
    match node:
        case Source():
            return f"read {node.topic}"
        case Sink():
            return f"write {_target_of(node)}"
        case TableOutput():
            return f"write {', '.join(table.table for table in node.tables.tables)}"
        case _:
            return node.name


def _stores(node: AnyNode) -> tuple[str, ...]:
    match node:
        case Aggregate() | Table() | Subscribe():
            return (node.store.name,)
        case Processor():
            return tuple(store.name for store in node.stores.values())
        case JoinSide(join=StreamJoin() | Answers() | ForeignJoin() as join):
            return (join.store.name,)
        case _:
            return ()


def _late_topic(node: AnyNode) -> str | None:
    match node:
        case Aggregate():
            return node.store.window.late if node.store.window is not None else None
        case JoinSide() if isinstance(node.join, StreamJoin):
            return node.join.late
        case _:
            return None


Partitions = Mapping[str, int]
"""Number of partitions by topic."""


Leases = Mapping[str, Sequence[str]]
"""Leased transactional ids, by sub-topology."""


def describe(
    graph: Graph,
    partitions: Partitions | None = None,
    leases: Leases | None = None,
    *,
    writer: str | None = None,
) -> dict[str, Any]:
    """Return the graph as plain data.

    Args:
        graph: the result of `resolve`.
        partitions: number of partitions by source topic, where they are known.
        leases: the ids that tasks have; None: they are derived.
        writer: the id under which a worker writes for all of its tasks; None: each task has one.

    Raises:
        TopologyError: sources of one sub-topology have different numbers of partitions.
    """
    matched = matched_by_pattern(graph)
    graph = with_patterns_shown(graph)
    parts = graph.sub_topologies
    return {
        "application": graph.application,
        "control_topic": control_topic(graph.application),
        "source_topics": sorted({s.topic for part in parts for s in part.sources}),
        "sink_topics": sorted({topic for part in parts for topic in part.sink_topics}),
        "sub_topologies": [
            _describe_part(graph, part, partitions or {}, leases, writer) for part in parts
        ],
        "table_sinks": [_describe_table_sink(table_sink) for table_sink in graph.table_sinks],
        "global_tables": [_describe_global_table(table) for table in graph.global_tables],
        "patterns": [
            {"source": one.source, "pattern": one.pattern, "topics": matched[one.source]}
            for one in graph.patterns
        ],
    }


def as_text(
    graph: Graph,
    partitions: Partitions | None = None,
    leases: Leases | None = None,
    *,
    writer: str | None = None,
) -> str:
    """Return the graph as indented text, from sources to sinks."""
    lines = [f"application {graph.application}"]
    described = describe(graph, partitions, leases, writer=writer)
    for part in described["sub_topologies"]:
        lines += ["", f"sub-topology {part['name']}"]
        if leases is not None:
            leased = ", ".join(part["transactional_ids"]) or "none yet"
            lines.append(f"  one task for each partition, writing as leased: {leased}")
        elif part["partitions"] is None or writer is not None:
            number = part["partitions"]
            tasks_ = "one task for each partition" if number is None else f"{number} tasks"
            each = "" if writer is None else ", one id for each worker"
            lines.append(f"  {tasks_}, writing as {part['transactional_id']}{each}")
        else:
            ids = part["transactional_ids"]
            lines.append(f"  {part['partitions']} tasks, writing as {ids[0]} … {ids[-1]}")
        for topic in part["sink_topics"]:
            lines.append(f"  writes {topic}")
        for store in part["stores"]:
            ttl = "" if store["ttl_ms"] is None else f" for {short(store['ttl_ms'])}"
            kept = store["name"] + _window_label(store["window"]) + ttl
            lines.append(f"  keeps {kept}, with changelog {store['changelog']}")
        lines += [f"  writes a topic chosen by {name}" for name in part["dynamic_sinks"]]
    if graph.global_tables:
        lines.append("")
    for one in described["patterns"]:
        topics = ", ".join(one["topics"]) or "the topics of the cluster that match it"
        lines += ["", f"pattern {one['pattern']} of source {one['source']}: reads {topics}"]
    for table in graph.global_tables:
        lines.append(f"global table {table.name}, from {table.topic}")
    for table_sink in graph.table_sinks:
        lines += ["", f"rows of {table_sink.name}, from {table_sink.topic}"]
        lines += [f"  → {_table_label(table)}" for table in table_sink.tables]
    for part in with_patterns_shown(graph).sub_topologies:
        lines += ["", f"records of {part.name}"]
        shown: set[int] = set()
        for source in part.sources:
            lines += _text_of(source, 1, shown)
    return "\n".join(lines)


def as_mermaid(graph: Graph) -> str:
    """Return the graph as a mermaid flowchart."""
    diagram = draw(graph)
    lines = ["flowchart LR"]
    for number, part in enumerate(diagram.parts):
        lines.append(f"  subgraph p{number}[{_quote(part)}]")
        steps = (box for box in diagram.boxes if box.sub_topology == part)
        lines += [f"    {box.id}[{_quote(box.label)}]" for box in steps]
        lines.append("  end")
    for box in diagram.boxes:
        if box.kind is BoxKind.TABLE:
            lines.append(f"  {box.id}[[{_quote(f'table {box.label}')}]]")
        elif box.kind is not BoxKind.STEP:
            lines.append(f"  {box.id}[({_quote(box.label)})]")
    return "\n".join([*lines, *(f"  {_mermaid_arrow(arrow)}" for arrow in diagram.arrows)])


def _mermaid_arrow(arrow: Arrow) -> str:
    if arrow.is_side:
        return f"{arrow.source} -. {arrow.label} .-> {arrow.target}"
    shaft = f"-->|{_quote(arrow.label)}|" if arrow.label else "-->"
    return f"{arrow.source} {shaft} {arrow.target}"


def _describe_part(
    graph: Graph,
    part: SubTopology,
    partitions: Partitions,
    leases: Leases | None,
    writer: str | None,
) -> dict[str, Any]:
    counts = {s.topic: partitions[s.topic] for s in part.sources if s.topic in partitions}
    complete = len(counts) == len(part.sources)
    found = tasks(graph.application, part.name, counts) if complete else None
    ids = None if found is None or writer else list(map(str, found))
    pattern = writer or f"{prefix(graph.application)}{part.name}:{{partition}}"
    return {
        "name": part.name,
        "transactional_id": pattern if leases is None else None,
        "partitions": co_partitioned(part.name, counts) if complete else None,
        "transactional_ids": ids if leases is None else list(leases.get(part.name, ())),
        "sources": [_describe_source(source) for source in part.sources],
        "steps": [_describe_step(n) for n in nodes_of(part) if isinstance(n, Step)],
        "keyed": [
            *(_describe_keyed(n) for n in nodes_of(part) if isinstance(n, Aggregate)),
            *_describe_joins(nodes_of(part)),
        ],
        "stores": [_describe_store(store) for store in part.stores],
        **({} if part.effects_topic is None else {"effects_topic": part.effects_topic}),
        "sinks": [_describe_sink(n) for n in nodes_of(part) if isinstance(n, Sink)],
        "sink_topics": list(part.sink_topics),
        "dynamic_sinks": list(part.dynamic_sinks),
        "tables": [_describe_table_sink(tables) for tables in part.together],
    }


def _describe_table_sink(table_sink: TableSink) -> dict[str, Any]:
    return {
        "name": table_sink.name,
        "topic": table_sink.topic,
        "sub_topology": table_sink.sub_topology,
        "key": table_sink.key.name,
        "value": table_sink.value.name,
        "on_error": str(table_sink.on_error),
        "tables": [
            {
                "table": table.table,
                "mode": str(table.mode),
                "keys": list(table.keys),
                "row": None if table.row is None else table.row.name,
                "on_error": str(table.on_error),
            }
            for table in table_sink.tables
        ],
    }


def _describe_source(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "topic": source.topic,
        "key": source.key.name,
        "value": source.value.name,
        "timestamp": None if source.timestamp is None else source.timestamp.name,
        "on_error": _describe_policy(source.on_error),
        "next": [child.name for child in source.children],
    }


def _describe_step(step: Step) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": step.name,
        "stream": step.stream,
        "operator": str(step.operator),
        "function": step.function.name,
        "on_error": _describe_policy(step.on_error),
        "next": [child.name for child in step.children],
    }
    if step.columns is not None:
        described["columns"] = [
            {"name": name, "type": kind, "required": name in step.columns.required}
            for name, kind in step.columns.types
        ]
    if step.calls is not None:
        described["calls"] = {
            **step.calls.shown,
            "resources": {name: f.name for name, f in step.calls.resources.items()},
        }
    if step.branches:
        described["branches"] = [
            {"predicate": predicate and predicate.name, "next": [child.name for child in nodes]}
            for predicate, nodes in step.branches
        ]
    return described


def _describe_keyed(node: Aggregate) -> dict[str, Any]:
    bound = {} if node.bound is None else {"bound": node.bound}
    return {
        "name": node.name,
        "stream": node.stream,
        "operator": str(node.fold),
        **bound,
        "functions": {name: function.name for name, function in node.functions.items()},
        "store": node.store.name,
        "window": _describe_window(node.store.window),
        "emit": str(node.emit),
        "order": str(node.order),
        "on_error": _describe_policy(node.on_error),
        "next": [child.name for child in node.children],
    }


_Joining = Table | TableGroup | Lookup | TableJoin | StreamJoin | Subscribe | Answers | ForeignJoin


def _describe_joins(nodes: Iterable[AnyNode]) -> list[dict[str, Any]]:
    """Return a description of each table, group and join among `nodes`, each once."""
    joins = [node.join if isinstance(node, JoinSide) else node for node in nodes]
    found = {id(j): j for j in joins if isinstance(j, _Joining)}
    return [
        {
            "name": node.name,
            "stream": node.stream,
            **_describe_join(node),
            "on_error": {"policy": str(node.on_error.policy), "topic": node.on_error.topic},
            "next": [child.name for child in node.children],
        }
        for node in found.values()
    ]


def _describe_global_table(table: GlobalTable) -> dict[str, Any]:
    """Return the description of a global table."""
    return {
        "name": table.name,
        "topic": table.topic,
        "key": table.key.name,
        "value": table.value.name,
    }


def _describe_join(node: _Joining) -> dict[str, Any]:
    match node:
        case Subscribe():
            return {
                "operator": "subscribe",
                "table": node.other,
                "functions": {"key": node.of.name},
                "store": node.store.name,
                "subscriptions": [child.name for child in node.subscriptions],
            }
        case Answers():
            return {"operator": "answer", "table": node.rows.name, "store": node.store.name}
        case ForeignJoin():
            return {
                "operator": "join",
                "kind": str(node.kind),
                "functions": {"by": node.function.name},
                "store": node.store.name,
            }
        case TableGroup():
            return {
                "operator": "group_by",
                "table": node.view.name,
                "key": node.key.name,
                "functions": {"by": node.function.name},
            }
        case Table():
            return {
                "operator": "table",
                "store": node.store.name,
                "value": node.row.name,
                "history_ms": node.history_ms,
            }
        case Lookup():
            functions = {"by": node.function.name}
            if node.of is not None:
                functions["key"] = node.of.name
            return {
                "operator": "join",
                "kind": str(node.kind),
                "table": node.view.name,
                "order": str(node.order),
                "functions": functions,
            }
        case TableJoin():
            return {
                "operator": "join",
                "kind": str(node.kind),
                "tables": [node.left.name, node.right.name],
                "functions": {"by": node.function.name},
            }
        case StreamJoin():
            return {
                "operator": "join",
                "kind": str(node.kind),
                "functions": {"by": node.function.name},
                "store": node.store.name,
                "before_ms": node.before_ms,
                "after_ms": node.after_ms,
                "grace_ms": node.grace_ms,
                "late": node.late,
            }


def _describe_window(window: Window | None) -> dict[str, Any] | None:
    if window is None:
        return None
    described = {**asdict(window), "kind": str(window.kind)}
    del described["zone_rules"]  # it is of this machine
    if window.is_timed:
        del described["records"], described["step"]
    return described


def _window_label(window: Mapping[str, Any] | None) -> str:
    if window is None:
        return ""
    if window["kind"] == WindowKind.RECORDS:
        each = "" if window["step"] == window["records"] else f" every {window['step']}"
        return f" in windows of {window['records']} records{each}"
    size = short(window["size_ms"])
    zone = "" if window["zone"] is None else f" in {window['zone']}"
    kind = window["kind"]
    return f" for {size}" if kind == "last" else f" in {kind} windows of {size}{zone}"


def _describe_store(store: Store) -> dict[str, Any]:
    return {
        "name": store.name,
        "changelog": store.changelog,
        "key": store.key.name,
        "value": store.value.name,
        "version": store.version,
        "window": _describe_window(store.window),
        "ttl_ms": store.ttl_ms,
    }


def _describe_sink(sink: Sink) -> dict[str, Any]:
    dynamic = isinstance(sink.topic, Function)
    return {
        "name": sink.name,
        "topic": None if dynamic else sink.topic,
        "topic_from": sink.topic.name if isinstance(sink.topic, Function) else None,
        "key": sink.key.name,
        "value": sink.value.name,
        "on_error": _describe_policy(sink.on_error),
    }


def _describe_policy(policy: OnError) -> dict[str, Any]:
    described: dict[str, Any] = {"policy": str(policy.policy), "topic": policy.topic}
    if policy.replay:
        described |= {"retry_ms": list(policy.retry_ms), "replay": True}
    return described


def _text_of(
    node: AnyNode, depth: int, shown: set[int], policy: OnError | None = None
) -> Iterator[str]:
    """Yield the lines of a node and its followers; the policy only where it changes."""
    merged = " (merged, as above)" if id(node) in shown else ""
    ending = "" if node.on_error == policy else f", on error: {_policy_label(node.on_error)}"
    yield f"{'  ' * depth}{_text_label(node)}{merged or ending}"
    if merged:
        return
    shown.add(id(node))
    for label, child in followers_of(node):
        if label:
            yield f"{'  ' * (depth + 1)}{label}:"
        yield from _text_of(child, depth + 1 + bool(label), shown, node.on_error)


def _policy_label(policy: OnError) -> str:
    label = f"{policy.policy} {policy.topic}" if policy.topic else str(policy.policy)
    delays = ", ".join(map(short, policy.retry_ms))
    return f"retry after {delays}, then {label}" if delays else label


def _text_label(node: AnyNode) -> str:
    match node:
        case Source():
            return (
                f"{node.topic} ({node.key.name} key, {node.value.name} value{_retry_label(node)})"
            )
        case Sink():
            return f"→ {_target_of(node)} ({node.key.name} key, {node.value.name} value)"
        case TableOutput():
            tables = ", ".join(map(_table_label, node.tables.tables))
            return f"→ {tables}, together with the outputs"
        case _:
            return node.name


def _retry_label(source: Source) -> str:
    if source.retry_of is None:
        return ""
    if source.retry_of.delay_ms is None:
        return f"; dead letters of {source.retry_of.topic} that are replayed"
    return f"; {source.retry_of.topic} again, after {short(source.retry_of.delay_ms)}"


def _table_label(table: SinkTable) -> str:
    keys = f" by {', '.join(table.keys)}" if table.keys else ""
    return f"table {table.table} ({table.mode}{keys})"


def _quote(text: str) -> str:
    return '"' + text.replace('"', "#quot;").replace("<", "&lt;").replace(">", "&gt;") + '"'
