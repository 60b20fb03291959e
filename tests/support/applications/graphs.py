"""Graphs of a line or two, for tests that do not process records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eosframework.serialization.serdes import BYTES
from eosframework.topology.graph.graph import Graph, OnError, Source, SubTopology

Parts = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""By sub-topology: the topics it reads and those it writes."""


def graph_of(application: str, parts: Parts) -> Graph:
    """Return a graph whose sub-topologies read and write these topics."""
    return Graph(
        application,
        tuple(
            SubTopology(
                name,
                tuple(Source(topic, topic, BYTES, BYTES, None, OnError()) for topic in sources),
                tuple(sorted(sinks)),
            )
            for name, (sources, sinks) in parts.items()
        ),
    )
