"""Internal topics of an application: rows, repartition and retry topics, changelogs.

Their number of partitions follows from the sources, and their settings from their role: no record
may expire, because a stopped application may not have read it yet or may need it to restore a
store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eosframework.application.topic_settings import (
    TOMBSTONES_KEPT_MS,
    Deviation,
    TopicRole,
    deviations,
)
from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.topology.graph.graph import Graph, Repartition, SubTopology

TOMBSTONES_KEPT_SECONDS = TOMBSTONES_KEPT_MS // 1000
"""A store that was not written for half of this time is rebuilt, since deletions may be missing."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that only this application writes.

    Args:
        partitions: None: the sources that decide it do not exist.
    """

    name: str
    role: TopicRole
    partitions: int | None


def own_topics(graph: Graph, partitions: Mapping[str, int]) -> dict[str, InternalTopic]:
    """Return the application's internal topics by name.

    Args:
        graph: of the application.
        partitions: number of partitions by topic; 0 for one that does not exist.
    """
    counts = _counts(graph, partitions)
    found = [InternalTopic(r.topic, _role(r), counts.get(r.topic)) for r in graph.repartitions]
    tasks = {part.name: _tasks(part, counts) for part in graph.sub_topologies}
    for part in graph.sub_topologies:
        found += [
            InternalTopic(s.changelog, TopicRole.CHANGELOG, tasks[part.name]) for s in part.stores
        ]
    found += [
        InternalTopic(part.effects_topic, TopicRole.EFFECTS, tasks[part.name])
        for part in graph.sub_topologies
        if part.effects_topic is not None
    ]
    found += [
        InternalTopic(p.topic, TopicRole.ROWS, tasks[p.sub_topology])
        for p in graph.table_sinks
        if p.sub_topology is not None
    ]
    return {topic.name: topic for topic in found}


def undersized_topics(graph: Graph, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the internal topics with fewer partitions than the sources require, and that number.

    They were created before the sources, or when these had fewer partitions.

    Args:
        graph: of the application.
        partitions: number of partitions by topic; 0 for one that does not exist.
    """
    names = own_topics(graph, partitions).keys()
    sources = {name: count for name, count in partitions.items() if name not in names}
    wanted = own_topics(graph, sources)
    return {
        name: topic.partitions
        for name, topic in wanted.items()
        if topic.partitions and 0 < partitions[name] < topic.partitions
    }


def _role(repartition: Repartition) -> TopicRole:
    if repartition.retry_of is None:
        return TopicRole.REPARTITION
    return TopicRole.REPLAY if repartition.retry_of.delay_ms is None else TopicRole.RETRY


def task_counts(graph: Graph, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the number of tasks of each sub-topology whose sources exist."""
    counts = _counts(graph, partitions)
    tasks = {part.name: _tasks(part, counts) for part in graph.sub_topologies}
    return {name: count for name, count in tasks.items() if count}


def refuse_unfit_topics(graph: Graph, topics: Mapping[str, TopicDescription]) -> None:
    """Refuse internal topics that would lose records or do not match the tasks.

    Raises:
        StartRefused: names the topic, the found and the expected value.
    """
    for topic in existing_topics(graph, topics):
        refuse_unfit_size(topic, topics[topic.name])
        refuse_unfit_settings(topic.name, topic.role, topics[topic.name])


def existing_topics(
    graph: Graph, topics: Mapping[str, TopicDescription]
) -> Iterator[InternalTopic]:
    """Yield the internal topics that exist."""
    partitions = {name: found.partitions for name, found in topics.items()}
    for topic in own_topics(graph, partitions).values():
        if (found := topics.get(topic.name)) is not None and found.exists:
            yield topic


def refuse_unfit_size(topic: InternalTopic, found: TopicDescription) -> None:
    """Refuse an internal topic with another number of partitions than there are tasks.

    Rows topics are left out: no task reads them.

    Raises:
        StartRefused: names both numbers.
    """
    is_fixed = topic.partitions and topic.role is not TopicRole.ROWS
    if is_fixed and found.partitions != topic.partitions:
        raise StartRefused(
            f"{topic.role} topic {topic.name!r} has {found.partitions} partitions, and there are "
            f"{topic.partitions} tasks that need one each: the sources have another number of "
            f"partitions than when it was made. Where nothing was processed yet, `eosframework "
            f"apply APP` adds the partitions; else `eosframework explain page growing-partitions` "
            f"shows the way through: another application name, and a backfill"
        )


def refuse_unfit_settings(name: str, role: TopicRole, found: TopicDescription) -> None:
    """Refuse an internal topic with settings that break the guarantee, or change event times.

    Raises:
        StartRefused: names the topic, the setting, both values and the consequence.
    """
    for deviation in deviations(name, role, found):
        if deviation.requirement.refuses:
            raise StartRefused(str(deviation))


def doubtful_settings(graph: Graph, topics: Mapping[str, TopicDescription]) -> Iterator[Deviation]:
    """Yield the settings that no start is refused for, but that have a consequence.

    Args:
        graph: of the application.
        topics: every topic that the graph names.
    """
    for topic in existing_topics(graph, topics):
        found = deviations(topic.name, topic.role, topics[topic.name])
        yield from (one for one in found if not one.requirement.refuses)
    for role in (TopicRole.SINK, TopicRole.SOURCE):
        for name in _user_topics(graph, role):
            if (of_user := topics.get(name)) is not None:
                yield from deviations(name, role, of_user)


def _user_topics(graph: Graph, role: TopicRole) -> list[str]:
    """Return the outputs, or the sources whose Kafka timestamps decide results."""
    if role is TopicRole.SINK:
        return [name for name in graph.sink_topics if name not in graph.internal_topics]
    if not graph.changelog_topics:
        return []
    return sorted(
        source.topic
        for source in graph.sources
        if source.timestamp is None and source.topic not in graph.internal_topics
    )


def _counts(graph: Graph, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partitions of each topic that exists or whose number follows."""
    counts = {name: count for name, count in partitions.items() if count}
    waiting = [r for r in graph.repartitions if r.topic not in counts]
    while waiting:
        known = {r.topic: count for r in waiting if (count := _partitions(graph, r, counts))}
        if not known:
            break
        counts |= known
        waiting = [r for r in waiting if r.topic not in counts]
    return counts


def _partitions(graph: Graph, wanted: Repartition, counts: Mapping[str, int]) -> int | None:
    """Return a repartition topic's partition count: that of topics it is joined with, if any."""
    own = graph.repartition_topics
    topics = [[source.topic for source in part.sources] for part in graph.sub_topologies]
    joined = next((read for read in topics if wanted.topic in read), list[str]())
    followed = (
        {r.topic for r in graph.repartitions if not r.follows} if wanted.follows else set[str]()
    )
    others = max(
        (counts.get(topic, 0) for topic in joined if topic not in own or topic in followed),
        default=0,
    )
    if wanted.follows:
        return others or None
    if stated := wanted.partitions or others:
        return stated
    return _tasks(graph.sub_topology(wanted.writer), counts)


def _tasks(part: SubTopology, counts: Mapping[str, int]) -> int | None:
    return max((counts.get(source.topic, 0) for source in part.sources), default=0) or None
