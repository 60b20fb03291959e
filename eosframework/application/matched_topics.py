"""The topics that sources by pattern read: those of the cluster that match now (ADR 44).

A start takes the matching topics from the cluster, and a running worker compares them with it at
each look of its watch (`MatchedTopics`). After a change its cycle ends with a commit, and it starts
again in the same process, from the checks on. Workers may know different topics meanwhile: each
topic has tasks of its own, and the group assigns its partitions only to members that read it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog

from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.patterns import matched_by_pattern, with_matched
from eosframework.topology.spec.topology_spec import matches

PATTERN = "pattern"
"""Kind of the control topic's entries with the patterns that ran, by source."""

START = "start"
EARLIEST = "earliest"
"""The start of a topic that was found once the application had run with its pattern."""

PAUSE_SECONDS = 1.0


def with_matching_topics(graph: Graph, admin: ClusterAdmin) -> Graph:
    """Return a graph with the topics of the cluster that its patterns match now.

    Raises:
        ClusterUnreachable: no broker answered in time.
        TopologyError: two sources, or an output and a source, would have a topic in common.
    """
    return with_matched(graph, _matching(graph, admin)) if graph.patterns else graph


def report_matched_topics(graph: Graph) -> None:
    """Log the topics of each pattern, as a warning if there is none yet."""
    events = structlog.get_logger("eosframework.worker")
    for one in graph.patterns:
        topics = matched_by_pattern(graph)[one.source]
        if topics:
            events.info("topics_matched", pattern=one.pattern, topics=topics)
        else:
            events.warning(
                "pattern_matches_nothing",
                pattern=one.pattern,
                consequence="its source has no record until a topic matches; the worker looks for "
                "one every few seconds",
            )


def waiting_for_topics(graph: Graph, admin: ClusterAdmin, is_stopped: Callable[[], bool]) -> Graph:
    """Return the graph once a topic matches a pattern, if the topology has no other source.

    Args:
        graph: of the application.
        admin: of its cluster.
        is_stopped: returns whether to give up; then it has no topic.

    Raises:
        ClusterUnreachable, TopologyError: as `with_matching_topics`.
    """
    while graph.patterns and not graph.sub_topologies and not is_stopped():
        time.sleep(PAUSE_SECONDS)
        graph = with_matching_topics(graph, admin)
    return graph


def pattern_entries(graph: Graph) -> dict[str, object]:
    """Return the entries of the control topic for the patterns of a graph."""
    return {f"{PATTERN}/{one.source}": {"pattern": one.pattern} for one in graph.patterns}


def found_later(graph: Graph, entries: Mapping[str, object]) -> frozenset[str]:
    """Return the matched topics whose source has run with this pattern before."""
    ran = {key for key, entry in pattern_entries(graph).items() if entries.get(key) == entry}
    return frozenset(
        topic
        for source, topics in matched_by_pattern(graph).items()
        if f"{PATTERN}/{source}" in ran
        for topic in topics
    )


def starting_whole(entries: Mapping[str, Mapping[str, object]]) -> frozenset[str]:
    """Return the topics that were found later, by the entries of the control topic.

    They start at their beginning: records that were written before a worker found the topic belong
    to the application like those that follow.
    """
    return frozenset(
        key.partition("/")[2]
        for key, entry in entries.items()
        if key.startswith("topic/") and entry.get(START) == EARLIEST
    )


class MatchedTopics:
    """Compares the topics that a worker reads by pattern with those of the cluster.

    Args:
        graph: of the worker.
        admin: may be used on any thread.
    """

    def __init__(self, graph: Graph, admin: ClusterAdmin) -> None:
        self.known = graph.matched_topics
        self._graph, self._admin = graph, admin
        self._unassigned: frozenset[str] = frozenset()

    def change(self) -> str | None:
        """Return what makes the worker start again; None: nothing does.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        if not self._graph.patterns:
            return None
        if new := sorted(_matching(self._graph, self._admin) - self.known.keys()):
            return f"found {', '.join(new)}"
        return self._unread()

    def _unread(self) -> str | None:
        """Return the topics that the group has assigned to no member in two looks.

        1. a worker is killed and starts again, or joins again, with one more topic  2. to the
        coordinator a static member is back (KIP-345); it keeps the group's assignment, in which no
        member has the new topic. Leaving the group and joining again makes it assign anew.
        """
        group = self._admin.describe_group(self._graph.application)
        assigned = {p.topic for member in group.members for p in member.partitions}
        before = self._unassigned
        has_all = not group.is_stable or not assigned
        self._unassigned = frozenset() if has_all else frozenset(self.known.keys() - assigned)
        if left := sorted(self._unassigned & before):
            return f"the group has assigned {', '.join(left)} to no worker"
        return None


def _matching(graph: Graph, admin: ClusterAdmin) -> set[str]:
    names = [
        topic
        for topic in admin.topic_names()
        if any(matches(one.pattern, topic) for one in graph.patterns)
    ]
    # The metadata of one broker may have a topic that was deleted a moment ago.
    return set(admin.identities(names))
