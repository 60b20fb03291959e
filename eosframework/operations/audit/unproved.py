"""Outputs that no receipt can prove: results of many inputs, given by no single one of them."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.topology.graph.graph import Aggregate, Emit, Graph, OnError, Sink, SubTopology
from eosframework.topology.graph.walk import AnyNode, followers_of, has_state, nodes_of


def receipted_topics(graph: Graph) -> frozenset[str]:
    """Return the topics whose records functions cannot judge, so that only receipts can.

    Functions cannot say what a record gave to a task that remembers, or at its first attempt; and
    what went through a repartition topic is removed from it where there are no receipts.
    """
    writers = {own.writer for own in graph.repartitions if own.retry_of is None}
    return frozenset(
        source.topic
        for part in graph.sub_topologies
        if has_state(part) or part.name in writers or _retries(part)
        for source in part.sources
    )


def unproved_topics(graph: Graph) -> dict[str, str]:
    """Return the topics that results of many inputs go to, each with the step that gives them.

    A step gives such results at a commit (`emit: commit`) or when the clock closes a window
    (`close_when_idle`). What follows it, dead letters included, has no receipts either. A record
    that another sub-topology reads from such a topic is an input like any other.
    """
    found: dict[str, str] = {}
    for part in graph.sub_topologies:
        for node in nodes_of(part):
            if isinstance(node, Aggregate) and (reason := _reason(node)) is not None:
                for topic in _topics_behind(node, part):
                    found.setdefault(topic, f"{node.name} ({reason})")
    return found


def _reason(node: Aggregate) -> str | None:
    if node.emit is Emit.COMMIT:
        return "emit: commit"
    window = node.store.window
    closes = node.emit is Emit.CLOSE and window is not None and window.close_idle_ms is not None
    return "close_when_idle" if closes else None


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
            # What a function chooses is one of the topics that the part names, or is not audited.
            yield from (node.topic,) if isinstance(node.topic, str) else part.sink_topics
        todo.extend(child for _, child in followers_of(node))


def _retries(part: SubTopology) -> bool:
    return any(source.retry_of is not None and source.retry_of.delay_ms for source in part.sources)
