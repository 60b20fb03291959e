"""Targets of replays: topics that the failed sub-topology reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eosframework.topology.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class Target:
    """A topic from which the records of one input topic can be processed again.

    Args:
        topic: its name.
        sub_topology: the sub-topology that reads it.
        is_own: only the application reads it.
    """

    topic: str
    sub_topology: str
    is_own: bool


def targets(graph: Graph) -> Mapping[str, Target]:
    """Return the target of each input topic that a dead letter may name.

    It is the application's replay topic for this input if declared, else the input topic itself.
    """
    own = {repartition.topic for repartition in graph.repartitions}
    found = {
        source.topic: Target(source.topic, part.name, source.topic in own)
        for part in graph.sub_topologies
        for source in part.sources
    }
    for part in graph.sub_topologies:
        for source in part.sources:
            if source.again is not None and source.again.delay_ms is None:
                found[source.again.topic] = found[source.topic]
    return found
