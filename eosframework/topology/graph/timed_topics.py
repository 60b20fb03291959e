"""The repartition topics whose records have a time of writing and watermarks (ADR 20).

A sub-topology depends on time if stream time alone can emit results or remove state: it has
windows, joins of streams or timers, a step with `order: time`, or it writes to a repartition topic
whose reader depends on time. The repartition topics that it reads are timed.

The sub-topologies with a reorder step, and the steps that follow it (ADR 20).
A step depends on order if equal sets of records in another order have other results: sessions and
sliding windows, where a record that is late for one window may extend another, `deduplicate`,
joins with a table's history, functions with timers, and what says so. A step states it with
`order: time`, or has it by default. If a sub-topology reads timed topics, its branches with such
steps get their records from one reorder step at its sources; other branches get each record at
once. The rows that a join looks up in order are held like the records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import TypeGuard

from eosframework.errors import TopologyError
from eosframework.serialization.serdes import BYTES
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Graph,
    JoinSide,
    Lookup,
    Node,
    Order,
    Processor,
    Reorder,
    Sink,
    Source,
    Step,
    Store,
    StreamJoin,
    SubTopology,
    Table,
    TableJoin,
    View,
)
from eosframework.topology.graph.walk import AnyNode, followers_of, nodes_of
from eosframework.topology.spec.keyed_spec import WindowKind
from eosframework.txnid import changelog_topic


@dataclass(frozen=True, slots=True)
class TimedTopic:
    """A repartition topic whose reader depends on time.

    Args:
        topic: its name.
        writer: the sub-topology that writes it.
        hold_ms: how far the results that its writer emits later may be older than the writer's
            stream time.
        is_ordered: its reader has a reorder step, so its records name their upstream task.
    """

    topic: str
    writer: str
    hold_ms: int
    is_ordered: bool = False


def timed_topics(graph: Graph) -> dict[str, TimedTopic]:
    """Return the timed topics of a graph, by name."""
    own = {r.topic: r.writer for r in graph.repartitions if r.retry_of is None}
    parts = {part.name: part for part in graph.sub_topologies}
    written = {name: _written(part) & own.keys() for name, part in parts.items()}
    timed = {name for name, part in parts.items() if any(map(_is_timed, nodes_of(part)))}
    readers = {topic: part.name for part in parts.values() for topic in part.topics}
    while added := {
        name
        for name, topics in written.items()
        if name not in timed and any(readers.get(topic) in timed for topic in topics)
    }:
        timed |= added
    return {
        topic: TimedTopic(
            topic, writer, hold_ms(parts[writer], topic), _is_ordered(parts[readers[topic]], topic)
        )
        for topic, writer in own.items()
        if readers.get(topic) in timed and writer in parts
    }


def refuse_circles(graph: Graph) -> None:
    """Refuse a graph in which stream time of a sub-topology would wait for itself.

    Raises:
        TopologyError: repartition topics close a circle with a step that depends on time.
    """
    readers = {source.topic: part.name for part in graph.sub_topologies for source in part.sources}
    upstream: dict[str, set[str]] = {part.name: set() for part in graph.sub_topologies}
    for timed in timed_topics(graph).values():
        upstream[readers[timed.topic]].add(timed.writer)
    try:
        TopologicalSorter(upstream).prepare()
    except CycleError as error:
        raise TopologyError(
            f"application {graph.application!r}: sub-topologies feed each other through "
            f"repartition topics ({' → '.join(error.args[1])}), and a step there depends on "
            f"stream time, which would wait for itself: it would never emit. Write what has the "
            f"new key, or the joined table, to a topic, and take that step in another application"
        ) from None


def _is_ordered(reader: SubTopology, topic: str) -> bool:
    return reader.reorder is not None and topic in reader.reorder.followers


def moves_time(part: SubTopology, source: Source) -> bool:
    """Return whether the records of a source move stream time.

    Rows of a table do if a reorder step holds them: the records that look them up have to wait for
    them, as they wait for each other.
    """
    in_order = part.reorder is not None and source.topic in part.reorder.followers
    return in_order or not source.is_table


def hold_ms(part: SubTopology, topic: str) -> int:
    """Return how far results that a sub-topology writes to a topic may be older than stream time.

    Results of a step that waits for stream time are older than it: those of a window by up to its
    length and grace. The greatest sum on a way to the topic counts.
    """
    held: dict[int, int] = {}

    def longest(node: AnyNode) -> int:
        """Return the hold on the ways from a node to the topic; -1: there is none."""
        if isinstance(node, Sink):
            return 0 if node.topic == topic else -1
        if id(node) not in held:
            after = max((longest(child) for _, child in followers_of(node)), default=-1)
            held[id(node)] = after if after < 0 else after + _own_hold(node)
        return held[id(node)]

    return max((longest(source) for source in part.sources), default=0)


def _own_hold(node: AnyNode) -> int:
    match node:
        case Aggregate(emit=Emit.CLOSE) if node.store.window is not None:
            window = node.store.window
            is_aligned = window.kind in (WindowKind.TUMBLING, WindowKind.HOPPING)
            return window.longest_ms + window.grace_ms + (0 if is_aligned else 1)
        case JoinSide(join=StreamJoin() as join) if join.emit is Emit.CLOSE:
            return max(join.before_ms, join.after_ms) + join.grace_ms + 1
        case _:
            return 0


def waits_for_time(node: AnyNode) -> bool:
    """Return whether a node emits results that wait for stream time."""
    match node:
        case Aggregate():
            return node.emit is Emit.CLOSE or node.order is Order.TIME
        case Processor():
            return node.timers is not None or node.order is Order.TIME
        case JoinSide():
            return isinstance(node.join, StreamJoin) and node.join.emit is Emit.CLOSE
        case Lookup():
            return node.order is Order.TIME
        case _:
            return False


def _is_timed(node: AnyNode) -> bool:
    match node:
        case Aggregate():
            window = node.store.window
            return (window is not None and window.is_timed) or node.order is Order.TIME
        case Processor():
            return node.timers is not None or node.order is Order.TIME
        case JoinSide():
            return isinstance(node.join, StreamJoin)
        case Lookup():
            return node.order is Order.TIME
        case _:
            return False


def _written(part: SubTopology) -> set[str]:
    return {*_sinks(part)}


def _sinks(part: SubTopology) -> Iterator[str]:
    for node in nodes_of(part):
        if isinstance(node, Sink) and isinstance(node.topic, str):
            yield node.topic


def with_time_stores(graph: Graph) -> Graph:
    """Return a graph with a store for the watermarks of each task that reads a timed topic."""
    timed = timed_topics(graph)
    parts = (
        part
        if timed.keys().isdisjoint(part.topics)
        else replace(part, stores=(*part.stores, _time_store(graph.application, part)))
        for part in graph.sub_topologies
    )
    return replace(graph, sub_topologies=tuple(parts))


def time_store_of(part: SubTopology) -> Store | None:
    """Return the store for the watermarks of a sub-topology's tasks; None: they read none."""
    name = _time_store_name(part)
    return next((store for store in part.stores if store.name == name), None)


def _time_store(application: str, part: SubTopology) -> Store:
    name = _time_store_name(part)
    return Store(name, changelog_topic(application, name), BYTES, BYTES)


def _time_store_name(part: SubTopology) -> str:
    return f"{part.name}.__watermarks"


def needs_order(node: AnyNode) -> TypeGuard[Aggregate | Lookup | Processor]:
    """Return whether the results of a node depend on the order of its records."""
    return isinstance(node, Aggregate | Lookup | Processor) and node.order is Order.TIME


def with_reordering(graph: Graph) -> Graph:
    """Return a graph with a reorder step in each sub-topology that needs one."""
    timed = timed_topics(graph)
    parts = tuple(_reordered(graph.application, part, timed) for part in graph.sub_topologies)
    return replace(graph, sub_topologies=parts)


def _reordered(application: str, part: SubTopology, timed: Mapping[str, TimedTopic]) -> SubTopology:
    if timed.keys().isdisjoint(part.topics):
        return part
    needing = {id(node) for node in nodes_of(part) if needs_order(node)}
    needing |= {id(table) for table in _looked_up(part)}
    followers = {source.topic: _ordered(source, needing) for source in part.sources}
    followers = {topic: nodes for topic, nodes in followers.items() if nodes}
    if timed.keys().isdisjoint(followers):
        return part
    name = f"{part.name}.__reorder"
    store = Store(name, changelog_topic(application, name), BYTES, BYTES)
    policy = next(node.on_error for node in nodes_of(part) if needs_order(node))
    step = Reorder(f"{part.name} in order", part.name, store, followers, policy)
    return replace(part, stores=(*part.stores, store), reorder=step)


def _looked_up(part: SubTopology) -> Iterator[Table]:
    """Yield the tables whose rows are looked up in order."""
    for node in nodes_of(part):
        if isinstance(node, Lookup) and node.order is Order.TIME:
            yield from tables_of(node.view)


def tables_of(view: View) -> Iterator[Table]:
    """Yield the tables of sources that the rows of a view come from."""
    match view.origin:
        case Table():
            yield view.origin
        case TableJoin():
            yield from tables_of(view.origin.left)
            yield from tables_of(view.origin.right)
        case _:
            pass


def _ordered(source: Source, needing: Collection[int]) -> tuple[Node, ...]:
    """Return the children of a source that are followed by a node that needs order, or are one."""
    return tuple(
        child
        for child in source.children
        if not (isinstance(child, Step) and child.is_batch) and _leads_to(child, needing)
    )


def _leads_to(node: AnyNode, needing: Collection[int]) -> bool:
    followers = (child for _, child in followers_of(node))
    return id(node) in needing or any(_leads_to(child, needing) for child in followers)
