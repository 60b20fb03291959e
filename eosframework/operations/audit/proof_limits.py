"""The limits of each proof: input that only receipts can judge, and outputs without receipts."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Graph,
    JoinSide,
    OnError,
    Sink,
    StreamJoin,
    SubTopology,
)
from eosframework.topology.graph.timed_topics import timed_topics, waits_for_time
from eosframework.topology.graph.walk import AnyNode, followers_of, has_state, nodes_of


def receipted_topics(graph: Graph) -> frozenset[str]:
    """Return the topics whose records only receipts can judge.

    Functions cannot derive the outputs of a stateful task, or of a first attempt with retries; and
    records of a repartition topic are deleted after use.
    """
    writers = {own.writer for own in graph.repartitions if own.retry_of is None}
    return frozenset(
        source.topic
        for part in graph.sub_topologies
        if has_state(part) or part.name in writers or _retries(part)
        for source in part.sources
    )


def unproved_topics(graph: Graph) -> dict[str, str]:
    """Return the topics of results of many inputs, each with the step that emits them.

    A step emits such results at a commit (`emit: commit`), when the wall clock closes a window
    (`close_when_idle`), or when stream time passes idle sources, of a task that reads a repartition
    topic. The outputs of the following steps have no receipts either, dead letters and late records
    included. A record that another sub-topology reads from such a topic is an ordinary input.
    """
    found: dict[str, str] = {}
    timed = timed_topics(graph)
    for part in graph.sub_topologies:
        passes = any(source.topic in timed for source in part.sources)
        for node in nodes_of(part):
            if (reason := _reason(node, passes=passes)) is not None:
                for topic in _topics_behind(node, part):
                    found.setdefault(topic, f"{node.name} ({reason})")
    return found


def _reason(node: AnyNode, *, passes: bool) -> str | None:
    if isinstance(node, Aggregate) and node.emit is Emit.COMMIT:
        return "emit: commit"
    if not waits_for_time(node):
        return None
    window = node.store.window if isinstance(node, Aggregate) else None
    if window is not None and window.close_idle_ms is not None:
        return "close_when_idle"
    return "idle sources of a repartition topic" if passes else None


def _topics_behind(first: AnyNode, part: SubTopology) -> Iterator[str]:
    seen: set[int] = set()
    todo: list[AnyNode] = [first]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        policy = getattr(node, "on_error", None)
        if isinstance(policy, OnError) and policy.topic is not None:
            yield policy.topic
        if (late := _late_topic(node)) is not None:
            yield late
        if isinstance(node, Sink):
            # A function chooses among the topics that the part lists; others are not audited.
            yield from (node.topic,) if isinstance(node.topic, str) else part.sink_topics
        todo.extend(child for _, child in followers_of(node))


def _late_topic(node: AnyNode) -> str | None:
    match node:
        case Aggregate() if node.store.window is not None:
            return node.store.window.late
        case JoinSide(join=StreamJoin() as join):
            return join.late
        case _:
            return None


def _retries(part: SubTopology) -> bool:
    return any(source.retry_of is not None and source.retry_of.delay_ms for source in part.sources)
