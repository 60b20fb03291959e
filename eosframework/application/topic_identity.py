"""Topic identity: each topic of an application has the id that the application knows.

Offsets, state and earlier results belong to one topic, and a name outlives it. The control topic
records the ids (`topic/` for what is read by position, `written/` for what is written), a start
compares them, and `TopicWatch` compares them while a worker runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicIdentity
from eosframework.records import Position
from eosframework.topology.graph.graph import Graph


class Use(StrEnum):
    """The use of a topic, as messages name it."""

    SOURCE = "source topic"
    CHANGELOG = "changelog topic"
    EFFECTS = "journal of effects"
    OUTPUT = "output topic"
    GLOBAL = "topic of a global table"
    ROWS = "topic of a table sink"
    """As its table writers know it; for the tasks that write it, it is an output."""
    CHOSEN = "destination topic"
    """Of an outbox relay, or of a sink that chooses its topic: no start knows its name."""
    CONTROL = "control topic"


def uses_of(graph: Graph) -> dict[str, Use]:
    """Return the use of each topic that the tasks of a graph read or write."""
    rows = [sink.topic for sink in graph.table_sinks if sink.sub_topology is not None]
    return {
        **dict.fromkeys([*graph.sink_topics, *rows], Use.OUTPUT),
        **dict.fromkeys(graph.global_topics, Use.GLOBAL),
        **dict.fromkeys(graph.changelog_topics, Use.CHANGELOG),
        **dict.fromkeys(graph.effects_topics, Use.EFFECTS),
        **dict.fromkeys(graph.source_topics, Use.SOURCE),
    }


def written_uses(graph: Graph) -> dict[str, Use]:
    """Return the topics that a graph writes and whose ids are recorded under `written/`."""
    written = (Use.CHANGELOG, Use.EFFECTS, Use.OUTPUT)
    return {topic: use for topic, use in uses_of(graph).items() if use in written}


def replaced(topic: str, use: Use, recorded_id: str, found: TopicIdentity | None) -> str:
    """Return the first part of a message about a topic that is not the recorded one."""
    if found is None:
        return f"{use} {topic!r} was deleted: the application knows the one with id {recorded_id}. "
    return (
        f"{use} {topic!r} was deleted and created again: its id is {found.topic_id}, and the "
        f"application knows {recorded_id}. "
    )


def next_step(topic: str, use: Use) -> str:
    """Return the consequence and the command for a topic that is written."""
    accept = f"stop all workers and run: eosframework apply APP --accept {topic}"
    match use:
        case Use.CHANGELOG:
            return (
                f"The state of its store cannot be restored from it, and the input resumes at the "
                f"committed positions. To let the store start empty, {accept}; to process all "
                f"input again instead: eosframework reset APP"
            )
        case Use.EFFECTS:
            return (
                f"It is unknown which effects were made for records that are not committed: they "
                f"would be made again. If the service ignores keys that it knows, {accept}"
            )
        case Use.OUTPUT:
            return f"It lacks what was written before. To continue with it, {accept}"
        case Use.CHOSEN:
            return (
                "It lacks what was written before, and what was written while it was created may "
                "be lost with the former one. To continue with it, start again"
            )
        case _:
            return "Stop all workers, and begin anew: eosframework reset APP"


def resuming(
    topic: str,
    found: TopicIdentity | None,
    positions: Sequence[Position],
    ends: Mapping[int, int],
    *,
    untouched: Collection[int] = (),
    command: str = "eosframework positions set APP",
) -> str:
    """Return where to resume in a topic that was created again, and the command for it.

    A position that lies within the new log may be one that a worker reached there before it found
    the new id. Reading such a partition from its start could process records twice.

    Args:
        topic: its name.
        found: the new topic; None: there is none.
        positions: of the application, as it would resume.
        ends: the high watermark of each partition of the new topic.
        untouched: partitions of which nothing was processed since the former topic was last seen.
        command: sets positions.
    """
    if found is None:
        return (
            f"Its offsets will mean other records. Stop all workers, create it again, and start a "
            f"worker: it names the positions to set with `{command}`"
        )
    reached = {p.partition: p.offset for p in positions if p.topic == topic and p.offset}
    maybe_read = {
        number: offset
        for number, offset in sorted(reached.items())
        if number not in untouched and offset <= ends.get(number, 0)
    }
    first = "Its offsets now mean other records. "
    if not maybe_read:
        return (
            f"{first}Nothing of the new one was processed. To process it, stop all workers and set "
            f"where to start: {command} {topic}=earliest"
        )
    wanted = " ".join(
        f"'{topic}[{number}]={maybe_read.get(number, 'earliest')}'"
        for number in range(found.partitions)
    )
    return (
        f"{first}If a worker ran when it was created, records of the new one before these offsets "
        f"may be processed, and were not all. To process none twice, stop all workers and run: "
        f"{command} {wanted}. Only if none ran then: {command} {topic}=earliest"
    )


def refuse_replaced(
    uses: Mapping[str, Use],
    recorded: Mapping[str, str],
    topics: Mapping[str, TopicIdentity],
) -> None:
    """Refuse written topics that are not the recorded ones.

    Args:
        uses: of the topics of the application.
        recorded: topic ids in the control topic.
        topics: those that exist.

    Raises:
        StartRefused: names the topic, both ids and the command.
    """
    for topic, use in sorted(uses.items()):
        known, found = recorded.get(topic), topics.get(topic)
        if known is not None and (found is None or found.topic_id != known):
            raise StartRefused(f"{replaced(topic, use, known, found)}{next_step(topic, use)}")
