"""Internal topics with records that this application did not write.

Internal topics are used by their names only. Before its first record the application records the id
of each one in the control topic, so a topic that has records and is not recorded is foreign: its
content would be taken for state, and its records for input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eosframework.application.control_topic import ControlState, ControlTopic
from eosframework.application.internal_topics import own_topics
from eosframework.application.topic_settings import TopicRole
from eosframework.application.topology_changes import recorded_stores
from eosframework.errors import StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph

_CHECKED = (TopicRole.CHANGELOG, TopicRole.REPARTITION, TopicRole.RETRY, TopicRole.ROWS)
"""Not replay topics: a command writes them, before the first worker that reads them starts."""


def foreign_topics(
    graph: Graph,
    topics: Mapping[str, TopicDescription],
    control_topic: ControlTopic,
    admin: ClusterAdmin,
) -> frozenset[str]:
    """Return the internal topics that have, or had, records and are not recorded.

    Args:
        graph: of the application.
        topics: every topic that the graph names.
        control_topic: of the application; read before the call.
        admin: reads the ends of the topics.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    suspects = [t for t in _unrecorded(graph, topics, control_topic.state) if topics[t].exists]
    partitions = [TopicPartition(t, n) for t in suspects for n in range(topics[t].partitions)]
    if not partitions:
        return frozenset()
    ends = admin.high_watermarks(partitions)
    written = {partition.topic for partition, end in ends.items() if end > 0}
    if not written:
        return frozenset()
    # Another worker of this application may have started meanwhile:
    #
    #   1. this one reads the control topic, in which nothing is recorded
    #   2. the other one records the topics, and writes its first record
    #   3. this one reads the ends of the topics
    #
    # A record that is seen in 3 was written after 2, which the second reading shows.
    return frozenset(written & _unrecorded(graph, topics, control_topic.refresh()))


def refuse_foreign_topics(
    graph: Graph, foreign: Collection[str], topics: Mapping[str, TopicDescription]
) -> None:
    """Refuse internal topics of others.

    Args:
        graph: of the application.
        foreign: internal topics that have records and are not recorded.
        topics: every topic that the graph names.

    Raises:
        StartRefused: names the topic, and says what to do.
    """
    for name in sorted(foreign):
        role = own_topics(graph, {t: found.partitions for t, found in topics.items()})[name].role
        raise StartRefused(
            f"{role} topic {name!r} (id {topics[name].topic_id}) has records that application "
            f"{graph.application!r} did not write: the control topic does not have its id. They "
            f"would be taken for the application's own. Give this application another name; or, "
            f"if no other program needs the topic, delete it (kafka-topics --delete --topic "
            f"{name}) and run `eosframework apply APP`. If the control topic was deleted, "
            f"`eosframework reset APP` begins anew"
        )


def _unrecorded(
    graph: Graph, topics: Mapping[str, TopicDescription], control: ControlState
) -> set[str]:
    own = own_topics(graph, {name: found.partitions for name, found in topics.items()})
    stores = recorded_stores(control)
    is_first = not control.topics and stores is None
    changelogs = {s.changelog: s.name for part in graph.sub_topologies for s in part.stores}
    unrecorded: set[str] = set()
    for name, topic in own.items():
        match topic.role:
            case TopicRole.CHANGELOG:
                is_known = not is_first if stores is None else changelogs[name] in stores
            case TopicRole.ROWS:
                is_known = not is_first
            case _:
                is_known = name in control.topics
        if topic.role in _CHECKED and not is_known:
            unrecorded.add(name)
    return unrecorded
