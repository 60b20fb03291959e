"""Sets the positions of a stopped application, after a start was refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import committed_key, topic_entry, topic_key
from eosframework.application.decided import set_decided_offsets, settle_decisions
from eosframework.application.fencing import fence_workers, refuse_members
from eosframework.application.start_checks import Facts, gather, refuse_another_cluster
from eosframework.config import Guarantee
from eosframework.engine.task.offsets import Progress
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
_WISH = re.compile(
    r"(?P<topic>[^\[\]=]+)(\[(?P<number>[0-9]{1,9})\])?=(?P<where>[0-9]{1,18}|earliest|latest|committed)"
)


@dataclass(frozen=True, slots=True)
class PositionRequest:
    """One argument of `positions set`: TOPIC[NUMBER]=WHERE or TOPIC=WHERE.

    Args:
        number: None: all partitions of the topic.
        where: an offset, earliest, latest, or committed (keep the offset and accept the topic as it
            is).
    """

    topic: str
    number: int | None
    where: str

    @classmethod
    def parse(cls, text: str) -> PositionRequest:
        """Parse an argument.

        Raises:
            ConfigurationError: it is malformed; an offset needs its partition.
        """
        match = _WISH.fullmatch(text)
        if match is None or (match["number"] is None and match["where"].isdigit()):
            raise ConfigurationError(
                f"{text!r} is no position; expected TOPIC[PARTITION]=OFFSET, or TOPIC= or "
                f"TOPIC[PARTITION]= with {EARLIEST}, {LATEST} or {COMMITTED}, for example "
                f"'orders[0]=1200' or orders={EARLIEST}"
            )
        number = match["number"]
        return cls(match["topic"], None if number is None else int(number), match["where"])


def set_positions(context: ApplicationContext, wishes: Sequence[PositionRequest]) -> list[Position]:
    """Commit positions for a stopped application and record its topics as they are now.

    1. refuse invalid positions, and members  2. fence every id whose owner could still commit
    3. look again, now that nothing is open  4. commit the offsets, before that to a database that
    decides transactions  5. record the topics

    After a crash between 4 and 5 the start checks still refuse, and the command can be repeated.
    Brokers refuse 4 while the group has members, so a worker that joined meanwhile is safe. Without
    step 2 a worker that is suspended before its EndTxn would commit afterwards what is then
    processed twice.

    Returns:
        The positions that were committed.

    Raises:
        StartRefused: the application runs, or the control topic belongs to another cluster.
        ConfigurationError: a topic, a partition or an offset does not exist, or a topic that was
            created again or resized is not given completely.
        TransactionError: an id could not be initialized; no position was set.
    """
    graph, admin, control_topic = context.graph, context.admin, context.control_topic
    control_topic.ensure()
    facts = gather(context)
    refuse_another_cluster(graph, facts)
    refuse_members([graph.application], admin, "its positions are set")
    _checked(graph, wishes, facts, admin)
    if context.settings.worker.guarantee is Guarantee.EXACTLY_ONCE:
        fence_workers(context)
        settle_decisions(context)
        facts = gather(context)
    wanted, positions = _checked(graph, wishes, facts, admin)
    kept = [p for p in facts.committed if wanted.get(p.topic_partition) == COMMITTED]
    set_decided_offsets(context, [*positions, *kept])
    if positions:
        admin.commit(graph.application, positions)
    control_topic.write(_entries(graph, wanted, facts))
    control_topic.refresh()
    return positions


def _checked(
    graph: Graph, wishes: Sequence[PositionRequest], facts: Facts, admin: ClusterAdmin
) -> tuple[dict[TopicPartition, str], list[Position]]:
    """Return the requested position of each partition, and the offsets to commit."""
    wanted = by_partition(graph, wishes, {t: facts.topics[t] for t in graph.source_topics})
    _refuse_incomplete(wanted, facts)
    return wanted, offsets_for(wanted, admin)


def by_partition(
    graph: Graph, wishes: Sequence[PositionRequest], topics: Mapping[str, TopicDescription]
) -> dict[TopicPartition, str]:
    """Return the requested position of each partition; later requests override earlier ones.

    Args:
        graph: of the application.
        wishes: as they were given.
        topics: those whose positions can be set.

    Raises:
        ConfigurationError: a topic is not among them, or has no such partition.
    """
    wanted: dict[TopicPartition, str] = {}
    for wish in wishes:
        if wish.topic not in topics:
            raise ConfigurationError(_not_read(graph, wish.topic, sorted(topics)))
        count = topics[wish.topic].partitions
        if not count or (wish.number is not None and wish.number >= count):
            raise ConfigurationError(
                f"topic {wish.topic!r} has {count} partitions, so there is no partition "
                f"{wish.number or 0}; partitions count from 0"
            )
        numbers = range(count) if wish.number is None else [wish.number]
        wanted.update({TopicPartition(wish.topic, number): wish.where for number in numbers})
    return wanted


def _not_read(graph: Graph, topic: str, topics: Sequence[str]) -> str:
    name = graph.application
    if topic in graph.table_sink_topics:
        return (
            f"topic {topic!r} of application {name!r} is read by its table writers only; to "
            f"set their positions, add --tables"
        )
    if topic in graph.source_topics:
        return (
            f"topic {topic!r} of application {name!r} is read by its transforms, and by no "
            f"table writer; to set the transforms' positions, leave --tables out"
        )
    expected = f"expected one of {', '.join(topics)}" if topics else "it reads none"
    return f"{topic!r} is no source topic of application {name!r}; {expected}"


def _refuse_incomplete(wanted: dict[TopicPartition, str], facts: Facts) -> None:
    """Refuse requests that leave positions of the former topic in partitions of a changed one."""
    for topic in sorted({partition.topic for partition in wanted}):
        recorded, found = facts.control.topics.get(topic), facts.topics[topic]
        if recorded is None:
            continue
        given = {p.partition: where for p, where in wanted.items() if p.topic == topic}
        recreated = recorded.topic_id != found.topic_id
        kept = [number for number, where in given.items() if where == COMMITTED]
        if recreated and kept:
            raise ConfigurationError(
                f"topic {topic!r} was created again, so what was committed before means other "
                f"records; give partition {kept[0]} an offset, {EARLIEST} or {LATEST}"
            )
        changed = recreated or recorded.partitions != found.partitions
        missing = sorted(set(range(found.partitions)) - set(given))
        if changed and missing:
            raise ConfigurationError(
                f"topic {topic!r} has changed since it was recorded, so all of its "
                f"{found.partitions} partitions have to be given; missing: "
                f"{', '.join(map(str, missing))}"
            )


def offsets_for(wanted: Mapping[TopicPartition, str], admin: ClusterAdmin) -> list[Position]:
    """Return an offset for each partition to move, within its log.

    Raises:
        ConfigurationError: an offset is not in the log.
    """
    moving = {p: where for p, where in wanted.items() if where != COMMITTED}
    bounds = admin.log_bounds(list(moving))
    positions: list[Position] = []
    for partition, where in sorted(moving.items()):
        first, end = bounds[partition]
        offset = {EARLIEST: first, LATEST: end}.get(where) if not where.isdigit() else int(where)
        if offset is None or not first <= offset <= end:
            raise ConfigurationError(
                f"offset {where} of {partition} is not in the log, which holds {first} to {end}; "
                f"give one of these"
            )
        positions.append(Position(*partition, offset, str(Progress())))
    return positions


def _entries(graph: Graph, wanted: dict[TopicPartition, str], facts: Facts) -> dict[str, object]:
    entries: dict[str, object] = {}
    for partition, where in wanted.items():
        topic = facts.topics[partition.topic]
        entries[topic_key(partition.topic)] = topic_entry(topic)
        if where != COMMITTED:
            key = committed_key(graph.readers[partition.topic].name, partition)
            entries[key] = {"topic_id": topic.topic_id}
    return entries
