"""The sub-topologies with a reorder step, and the steps that follow it (ADR 20).

A step depends on order if equal sets of records in another order have other results: sessions and
sliding windows, where a record that is late for one window may extend another, `deduplicate`,
joins with a table's history, functions with timers, and what says so. A step states it with
`order: time`, or has it by default. If a sub-topology reads timed topics, its branches with such
steps get their records from one reorder step at its sources; other branches get each record at
once. The rows that a join looks up in order are held like the records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeGuard

from eosframework.serialization.serdes import BYTES
from eosframework.topology.graph.graph import (
    Aggregate,
    Graph,
    Lookup,
    Node,
    Order,
    Processor,
    Reorder,
    Source,
    Step,
    Store,
    SubTopology,
    Table,
    TableJoin,
    View,
)
from eosframework.topology.graph.timed_topics import TimedTopic, timed_topics
from eosframework.topology.graph.walk import AnyNode, followers_of, nodes_of
from eosframework.txnid import changelog_topic


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
