"""Descriptions of a graph: as data, as text, as a mermaid diagram."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from eosframework.topology.graph.diagram import Arrow, BoxKind, draw, target_of
from eosframework.topology.graph.graph import (
    Aggregate,
    Function,
    GlobalTable,
    Graph,
    JoinSide,
    Lookup,
    OnError,
    Sink,
    SinkTable,
    Source,
    Step,
    Store,
    StreamJoin,
    SubTopology,
    Table,
    TableJoin,
    TableSink,
)
from eosframework.topology.graph.walk import AnyNode, followers_of, nodes_of
from eosframework.topology.spec.fields import short
from eosframework.topology.spec.window_spec import Window
from eosframework.txnid import co_partitioned, control_topic, prefix, tasks

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
    for table in graph.global_tables:
        lines.append(f"global table {table.name}, from {table.topic}")
    for table_sink in graph.table_sinks:
        lines += ["", f"rows of {table_sink.name}, from {table_sink.topic}"]
        lines += [f"  → {_table_label(table)}" for table in table_sink.tables]
    for part in graph.sub_topologies:
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
        "sinks": [_describe_sink(n) for n in nodes_of(part) if isinstance(n, Sink)],
        "sink_topics": list(part.sink_topics),
        "dynamic_sinks": list(part.dynamic_sinks),
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
    if step.branches:
        described["branches"] = [
            {"predicate": predicate and predicate.name, "next": [child.name for child in nodes]}
            for predicate, nodes in step.branches
        ]
    return described


def _describe_keyed(node: Aggregate) -> dict[str, Any]:
    return {
        "name": node.name,
        "stream": node.stream,
        "operator": str(node.fold),
        "functions": {name: function.name for name, function in node.functions.items()},
        "store": node.store.name,
        "window": _describe_window(node.store.window),
        "emit": str(node.emit),
        "order": str(node.order),
        "on_error": _describe_policy(node.on_error),
        "next": [child.name for child in node.children],
    }


def _describe_joins(nodes: Iterable[AnyNode]) -> list[dict[str, Any]]:
    """Return a description of each table and join among `nodes`, each once."""
    joins = [node.join if isinstance(node, JoinSide) else node for node in nodes]
    found = {id(j): j for j in joins if isinstance(j, Table | Lookup | TableJoin | StreamJoin)}
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


def _describe_join(node: Table | Lookup | TableJoin | StreamJoin) -> dict[str, Any]:
    match node:
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
    return {**asdict(window), "kind": str(window.kind)}


def _window_label(window: Mapping[str, Any] | None) -> str:
    if window is None:
        return ""
    size = short(window["size_ms"])
    return f" for {size}" if window["kind"] == "last" else f" in {window['kind']} windows of {size}"


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
            return f"→ {target_of(node)} ({node.key.name} key, {node.value.name} value)"
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
