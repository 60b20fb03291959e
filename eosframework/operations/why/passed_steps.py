"""The steps between a source and an output topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eosframework.engine.failures.failure_headers import HEADER_STEP
from eosframework.errors import raised_by_functions
from eosframework.operations.why.explanation import PassedStep, bytes_shown
from eosframework.records import Headers
from eosframework.serialization.serdes import BYTES, Serde
from eosframework.state.query import as_json
from eosframework.topology.graph.code_places import codes_of
from eosframework.topology.graph.graph import (
    Aggregate,
    JoinSide,
    Sink,
    StreamJoin,
    SubTopology,
)
from eosframework.topology.graph.walk import AnyNode, followers_of, nodes_of, stores_of


def steps_to(
    part: SubTopology, source: str | None, topic: str, headers: Headers
) -> list[PassedStep]:
    """Return the steps on the ways from a source to a topic, in order, each once.

    A dead letter names its step, and the ways end there.

    Args:
        part: the sub-topology that wrote the record.
        source: topic of the input record; None: any.
        topic: of the output.
        headers: of the output.
    """
    failed = next((value for name, value in headers if name == HEADER_STEP), None)
    name = None if failed is None else _node_named(part, failed.decode(errors="replace"))
    found: dict[int, AnyNode] = {}
    for node in part.sources:
        if source in (None, node.topic):
            for way in _ways(node, topic, name, ()):
                found.update((id(step), step) for step in way)
    return [
        PassedStep(n.name, codes_of(n), tuple(store.name for store in stores_of(n)))
        for n in found.values()
    ]


def _node_named(part: SubTopology, step: str) -> str:
    """Return the node of a failed step, whose name may begin with that of the node."""
    names = [node.name for node in nodes_of(part) if step.startswith(node.name)]
    return max(names, key=len, default=step)


def serdes_of(part: SubTopology, topic: str) -> tuple[Serde, Serde]:
    """Return the serdes of keys and values of an output topic; of bytes, if it has several."""
    found = {
        (node.key, node.value)
        for node in nodes_of(part)
        if isinstance(node, Sink) and node.topic == topic
    }
    return found.pop() if len(found) == 1 else (BYTES, BYTES)


def decoded(data: bytes | None, serde: Serde) -> Any:
    """Return a key or a value for display; as bytes, if its serde cannot decode it."""
    if data is None or serde.decode is None:
        return bytes_shown(data)
    try:
        value = serde.decode(data)
        as_json(value)
    except raised_by_functions():
        return bytes_shown(data)
    return value


def decoded_or_none(data: bytes | None, serde: Serde) -> Any:
    """Return a key or a value as a driver of tests does."""
    return data if data is None or serde.decode is None else serde.decode(data)


def _ways(
    node: AnyNode, topic: str, failed: str | None, before: tuple[AnyNode, ...]
) -> Iterator[tuple[AnyNode, ...]]:
    way = (*before, node)
    if failed is not None and failed == node.name:
        yield way
        return
    if failed is None and _writes(node, topic):
        yield way
    if node in before:
        return
    for _, child in followers_of(node):
        yield from _ways(child, topic, failed, way)


def _writes(node: AnyNode, topic: str) -> bool:
    match node:
        case Sink():
            return not isinstance(node.topic, str) or node.topic == topic
        case Aggregate() if node.store.window is not None:
            return node.store.window.late == topic
        case JoinSide(join=StreamJoin() as join):
            return join.late == topic
        case _:
            return False
