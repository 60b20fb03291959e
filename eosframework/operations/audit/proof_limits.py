"""The limits of each proof: input that only receipts can judge, and outputs without receipts."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from eosframework.topology.graph.graph import Aggregate, Emit, Graph, OnError, Sink, SubTopology
from eosframework.topology.graph.timed_topics import moves_time, timed_topics, waits_for_time
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
    (`close_when_idle`), or when a source next to a repartition topic is idle. The outputs of the
    following steps have no receipts either, dead letters included. A record that another
    sub-topology reads from such a topic is an ordinary input.
    """
    found: dict[str, str] = {}
    timed = timed_topics(graph)
    for part in graph.sub_topologies:
        is_mixed = _has_both(part, timed)
        for node in nodes_of(part):
            if (reason := _reason(node, is_mixed=is_mixed)) is not None:
                for topic in _topics_behind(node, part):
                    found.setdefault(topic, f"{node.name} ({reason})")
    return found


def _reason(node: AnyNode, *, is_mixed: bool) -> str | None:
    if isinstance(node, Aggregate) and node.emit is Emit.COMMIT:
        return "emit: commit"
    if not waits_for_time(node):
        return None
    window = node.store.window if isinstance(node, Aggregate) else None
    if window is not None and window.close_idle_ms is not None:
        return "close_when_idle"
    return "a source next to a repartition topic" if is_mixed else None


def _has_both(part: SubTopology, timed: Collection[str]) -> bool:
    """Return whether a sub-topology reads timed topics and others that move stream time."""
    streams = [s for s in part.sources if s.retry_of is None and moves_time(part, s)]
    is_timed = [source.topic in timed for source in streams]
    return any(is_timed) and not all(is_timed)


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
        if isinstance(node, Sink):
            # A function chooses among the topics that the part lists; others are not audited.
            yield from (node.topic,) if isinstance(node.topic, str) else part.sink_topics
        todo.extend(child for _, child in followers_of(node))


def _retries(part: SubTopology) -> bool:
    return any(source.retry_of is not None and source.retry_of.delay_ms for source in part.sources)
