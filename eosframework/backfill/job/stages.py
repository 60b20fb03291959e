"""The stages of a backfill: one for each sub-topology, after those that write its input.

Live, all sub-topologies run at once and pass records through internal topics. Over history one runs
to its end before the next begins; the next sees its whole input, and so can merge it by time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from eosframework.errors import ConfigurationError
from eosframework.topology.graph.graph import Graph, SubTopology


@dataclass(frozen=True, slots=True)
class Stage:
    """A sub-topology over the whole range.

    Args:
        partitions: number of tasks, as live.
        own_topics: its internal source topics.
        files: its source topics replaced by files.
    """

    part: SubTopology
    partitions: int
    own_topics: frozenset[str]
    files: frozenset[str]

    @property
    def name(self) -> str:
        """Name of the sub-topology."""
        return self.part.name

    @property
    def topics(self) -> list[str]:
        """Its source topics, sorted."""
        return sorted(source.topic for source in self.part.sources)

    @property
    def reads_log(self) -> bool:
        """True if each task reads its records from the log, partition by partition in offset order.

        Internal topics are ordered by writer only, and files have no order by task.
        """
        return not self.own_topics and not self.files


def stages(graph: Graph, tasks: Mapping[str, int], files: Collection[str] = ()) -> list[Stage]:
    """Return the stages of a graph in execution order.

    Args:
        graph: of the application.
        tasks: number of tasks by sub-topology.
        files: source topics replaced by files.

    Raises:
        ConfigurationError: sub-topologies form a cycle.
    """
    parts = {part.name: part for part in graph.sub_topologies}
    writers = writers_of(graph)
    before = {
        part.name: {
            writer for source in part.sources for writer in writers.get(source.topic, frozenset())
        }
        for part in graph.sub_topologies
    }
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise ConfigurationError(
            f"application {graph.application!r} cannot be backfilled: its sub-topologies feed each "
            f"other in a circle ({circle}), so none of them can run to its end first; take the "
            f"topic that closes the circle out of the topology's sources for the backfill"
        ) from None
    return [
        Stage(
            parts[name],
            tasks[name],
            frozenset(s.topic for s in parts[name].sources if s.topic in writers),
            frozenset(s.topic for s in parts[name].sources if s.topic in files),
        )
        for name in order
    ]


def writers_of(graph: Graph) -> dict[str, frozenset[str]]:
    """Return the writing sub-topologies of each internal source topic."""
    sources = set(graph.source_topics)
    found: dict[str, set[str]] = {}
    for part in graph.sub_topologies:
        for topic in sources.intersection(part.sink_topics):
            found.setdefault(topic, set()).add(part.name)
    return {topic: frozenset(names) for topic, names in found.items()}
