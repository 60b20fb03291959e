"""Where replayed letters go: to a topic that what failed reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eosframework.topology.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that the records of one input topic can be processed from again.

    Args:
        topic: its name.
        sub_topology: that reads it.
        is_own: nobody but the application reads it.
    """

    topic: str
    sub_topology: str
    is_own: bool


def targets(graph: Graph) -> Mapping[str, Target]:
    """Return, by the input topic that a letter names, where its record goes.

    That is the topic of its own that the application has for this, else the input topic.
    """
    own = {repartition.topic for repartition in graph.repartitions}
    found = {
        source.topic: Target(source.topic, part.name, source.topic in own)
        for part in graph.sub_topologies
        for source in part.sources
    }
    for part in graph.sub_topologies:
        for source in part.sources:
            if source.retry_of is not None and source.retry_of.delay_ms is None:
                found[source.retry_of.topic] = found[source.topic]
    return found
