"""The functions that a store or repartition topic belongs to, and the step that has them now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eosframework.serialization.references import identity_of
from eosframework.topology.graph.graph import (
    Aggregate,
    Function,
    Graph,
    JoinSide,
    Operator,
    Processor,
    Sink,
    Step,
    StreamJoin,
    SubTopology,
)
from eosframework.topology.graph.walk import AnyNode, followers_of

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
        if isinstance(node, Processor) or (isinstance(node, Step) and node.operator in _NEW_KEY):
            keys = frozenset({identity(node.function)})
        todo += [(child, keys) for _, child in followers_of(node)]


def _stores_of(node: AnyNode) -> list[str]:
    match node:
        case Aggregate():
            return [node.store.name]
        case Processor():
            timers = () if node.timers is None else (node.timers,)
            return [store.name for store in (*node.stores.values(), *timers)]
        case JoinSide(join=StreamJoin() as join):
            return [join.store.name]
        case _:
            return []
