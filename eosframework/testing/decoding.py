"""Conversion between a test's values and the bytes in topics, with the topology's serdes."""

from __future__ import annotations

from typing import Any, cast

from eosframework.config import RegistrySettings
from eosframework.kafka.schema_registry.schema_codecs import SchemaRegistry
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import Graph, Sink
from eosframework.topology.graph.walk import nodes_of


def encoded(value: Any, serde: Serde) -> bytes | None:
    """Return the bytes of a value; bytes stay unchanged."""
    if value is None or isinstance(value, bytes) or serde.encode is None:
        return cast("bytes | None", value)
    return serde.encode(value)


def decoded(data: bytes | None, serde: Serde | None) -> Any:
    """Return the value of bytes; without a serde the bytes."""
    if data is None or serde is None or serde.decode is None:
        return data
    return serde.decode(data)


def sink_serdes(graph: Graph) -> dict[str, tuple[Serde, Serde]]:
    """Return the serdes of key and value of each output topic with a fixed name."""
    return {
        node.topic: (node.key, node.value)
        for part in graph.sub_topologies
        for node in nodes_of(part)
        if isinstance(node, Sink) and isinstance(node.topic, str)
    }


def keep_schemas_here(graph: Graph) -> None:
    """Bind serdes with schemas to this process instead of a registry."""
    if graph.codecs:
        SchemaRegistry(RegistrySettings(), local=True).bind(graph.codecs)
