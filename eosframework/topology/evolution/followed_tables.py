"""The tables that a store follows: it was given each row before it takes the row's next change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eosframework.topology.graph.graph import (
    Aggregate,
    Answers,
    ForeignJoin,
    Function,
    Graph,
    JoinSide,
    Operator,
    Subscribe,
    TableGroup,
    TableJoin,
    View,
)
from eosframework.topology.graph.walk import nodes_of


def followed_tables(graph: Graph) -> Mapping[str, Sequence[View]]:
    """Return by store the tables that it follows; none for a store that takes single records."""
    nodes = [node for part in graph.sub_topologies for node in nodes_of(part)]
    groups = {node.topic: node.view for node in nodes if isinstance(node, TableGroup)}
    found = dict[str, list[View]]()
    for source in graph.sources:
        for node in source.children if source.topic in groups else ():
            if isinstance(node, Aggregate):
                found.setdefault(node.store.name, []).append(groups[source.topic])
    for node in nodes:
        match node:
            case Subscribe(store=store, view=view):
                found[store.name] = [view]
            case JoinSide(join=Answers(store=store, rows=view)):
                found[store.name] = [view]
            case _:
                pass
    return found


def filters_shown(view: View) -> Iterator[tuple[str, Function]]:
    """Yield the functions that decide which rows of those in stores there are."""
    return ((label, one) for label, one in steps_shown(view) if label != Operator.MAP_VALUES)


def steps_shown(view: View) -> Iterator[tuple[str, Function]]:
    """Yield the functions that make a row from those in stores, each with the kind of its step."""
    match view.origin:
        case TableJoin(left=left, right=right, kind=kind, function=function):
            yield from steps_shown(left)
            yield from steps_shown(right)
            yield f"{kind} join", function
        case ForeignJoin(kind=kind, function=function):
            yield f"{kind} join", function
        case _:
            pass
    yield from ((str(operator), function) for operator, function in view.steps)
