"""Internal topics of an application: rows, repartition and retry topics, changelogs.

Their number of partitions follows from the sources, and their settings from their role: no record
may expire, because a stopped application may not have read it yet or may need it to restore a
store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.topology.graph.graph import Graph, Repartition, SubTopology

TOMBSTONES_KEPT_SECONDS = 7 * 86_400
"""A store that was not written for half of this time is rebuilt, since deletions may be missing."""


class InternalRole(StrEnum):
    """Roles of internal topics."""

    ROWS = "rows"
    REPARTITION = "repartition"
    RETRY = "retry"
    REPLAY = "replay"
    CHANGELOG = "changelog"


_UNTIL_READ = {"retention.ms": "-1", "cleanup.policy": "delete"}

SETTINGS: dict[InternalRole, dict[str, str]] = {
    InternalRole.ROWS: {"retention.ms": "-1"},
    InternalRole.REPARTITION: _UNTIL_READ,
    InternalRole.RETRY: _UNTIL_READ,
    InternalRole.REPLAY: _UNTIL_READ,
    InternalRole.CHANGELOG: {
        "cleanup.policy": "compact",
        "delete.retention.ms": str(TOMBSTONES_KEPT_SECONDS * 1000),
    },
}
"""Topic settings that `apply` sets at creation."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that only this application writes.

    Args:
        partitions: None: the sources that decide it do not exist.
    """

    name: str
    role: InternalRole
    partitions: int | None

    @property
    def settings(self) -> dict[str, str]:
        """Topic settings at creation."""
        return SETTINGS[self.role]


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
            InternalTopic(s.changelog, InternalRole.CHANGELOG, tasks[part.name])
            for s in part.stores
        ]
    found += [
        InternalTopic(p.topic, InternalRole.ROWS, tasks[p.sub_topology])
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


def _role(repartition: Repartition) -> InternalRole:
    if repartition.retry_of is None:
        return InternalRole.REPARTITION
    return InternalRole.REPLAY if repartition.retry_of.delay_ms is None else InternalRole.RETRY


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
    partitions = {name: found.partitions for name, found in topics.items()}
    for topic in own_topics(graph, partitions).values():
        found = topics[topic.name]
        if not found.exists or topic.role is InternalRole.ROWS:
            continue
        for complaint in _complaints(topic, found):
            raise StartRefused(f"{topic.role} topic {topic.name!r} {complaint}")


def _complaints(topic: InternalTopic, found: TopicDescription) -> Iterator[str]:
    if topic.partitions and found.partitions != topic.partitions:
        yield (
            f"has {found.partitions} partitions, and there are {topic.partitions} tasks that "
            f"need one each: the sources have another number of partitions than when it was made. "
            f"Where nothing was processed yet, `eosframework apply APP` adds the partitions; else "
            f"docs/howto/growing-partitions.md shows the way through: another application name, "
            f"and a backfill"
        )
    policy = (found.values or {}).get("cleanup.policy")
    wanted = topic.settings["cleanup.policy"]
    if policy is not None and policy != wanted:
        yield (
            f"has cleanup.policy={policy}, expected {wanted}: the brokers would remove what is "
            f"still needed. Set it: kafka-configs --alter --topic {topic.name} --add-config "
            f"cleanup.policy={wanted}"
        )
    retention = (found.values or {}).get("retention.ms")
    if topic.settings is _UNTIL_READ and retention not in (None, "-1"):
        yield (
            f"has retention.ms={retention}, expected -1: records that a stopped application has "
            f"not read would be deleted. Set it: kafka-configs --alter --topic {topic.name} "
            f"--add-config retention.ms=-1"
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
    others = max((counts.get(topic, 0) for topic in joined if topic not in own), default=0)
    writer = graph.sub_topology(wanted.writer)
    return wanted.partitions or others or _tasks(writer, counts)


def _tasks(part: SubTopology, counts: Mapping[str, int]) -> int | None:
    return max((counts.get(source.topic, 0) for source in part.sources), default=0) or None
