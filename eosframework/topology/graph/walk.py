"""Traversal of the nodes of a sub-topology."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eosframework.topology.graph.graph import (
    Aggregate,
    FoldKind,
    Function,
    Graph,
    JoinSide,
    Node,
    OnError,
    Policy,
    Sink,
    Source,
    Step,
    StreamJoin,
    SubTopology,
    Table,
)

AnyNode = Source | Node


def nodes_of(part: SubTopology) -> Iterator[AnyNode]:
    """Yield every node once, each before those that follow it on its first path."""
    yield from _from(part.sources)


def may_change(node: Node) -> bool:
    """Return whether a function of the user gets the value that a node receives.

    Every function may change it, whether it is meant to or not.
    """
    match node:
        case Sink():
            return isinstance(node.topic, Function)
        case Table():
            return any(map(may_change, node.children))
        case JoinSide(join=StreamJoin() as join):
            return any(join.keeps_unpaired)
        case Aggregate():
            return node.fold is not FoldKind.COUNT
        case _:
            return True


def _from(nodes: Sequence[AnyNode]) -> Iterator[AnyNode]:
    seen: set[int] = set()
    todo: list[AnyNode] = list(reversed(nodes))
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.extend(reversed([child for _, child in followers_of(node)]))


def followers_of(node: AnyNode) -> list[tuple[str, Node]]:
    """Return the nodes that receive a node's records, each with the label of its edge."""
    if isinstance(node, Sink):
        return []
    followers: list[tuple[str, Node]] = [("", child) for child in node.children]
    if isinstance(node, Step):
        for predicate, nodes in node.branches:
            label = "else" if predicate is None else predicate.name
            followers += [(label, child) for child in nodes]
    return followers


def policies_of(part: SubTopology) -> list[OnError]:
    """Return the error policy of each node."""
    found = [getattr(node, "on_error", None) for node in nodes_of(part)]
    return [policy for policy in found if isinstance(policy, OnError)]


def dead_letter_topics(graph: Graph) -> list[str]:
    """Return the dead-letter topics of a graph, sorted."""
    policies = [policy for part in graph.sub_topologies for policy in policies_of(part)]
    return sorted(
        {p.topic for p in policies if p.policy is Policy.DEAD_LETTER and p.topic is not None}
    )


def has_state(part: SubTopology) -> bool:
    """Return True if the results of a record depend on earlier records."""
    return any(not isinstance(node, Source | Step | Sink) for node in nodes_of(part))
