"""The sets of topics that must be co-partitioned because their records use the same store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from eosframework.topology.graph.graph import (
    Aggregate,
    GlobalTable,
    JoinSide,
    Lookup,
    Processor,
    Source,
    Store,
    StreamJoin,
    SubTopology,
    Table,
    TableJoin,
    View,
)
from eosframework.topology.graph.walk import AnyNode, followers_of


def copartitioned_topics(part: SubTopology) -> tuple[frozenset[str], ...]:
    """Return the sets of two or more topics whose records reach the same store.

    A store is divided by partition, so a key that two topics have in different partitions would
    have two entries. Repartition topics are included. Topics that are merged without a store are
    not: no result depends on the partition of a key.
    """
    reached: dict[str, set[str]] = defaultdict(set)
    for source in part.sources:
        for store in _stores_reached(source):
            reached[store.name].add(source.topic)
    sets = {frozenset(topics) for topics in reached.values() if len(topics) > 1}
    return tuple(sorted(sets, key=sorted))


def _stores_reached(source: Source) -> Iterator[Store]:
    """Yield every store that a record of `source` can change or look up."""
    seen: set[int] = set()
    todo: list[AnyNode] = [source]
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield from _stores_of(node)
            todo.extend(child for _, child in followers_of(node))


def _stores_of(node: AnyNode) -> Iterator[Store]:
    match node:
        case Aggregate() | Table():
            yield node.store
        case Processor():
            yield from node.stores.values()
        case Lookup():
            yield from _viewed(node.view)
        case JoinSide(join=StreamJoin() as join):
            yield join.store
        case JoinSide(join=TableJoin() as join):
            yield from _viewed(join.left)
            yield from _viewed(join.right)
        case _:
            return


def _viewed(view: View) -> Iterator[Store]:
    match view.origin:
        case GlobalTable():
            return
        case TableJoin(left=left, right=right):
            yield from _viewed(left)
            yield from _viewed(right)
        case origin:
            yield origin.store
