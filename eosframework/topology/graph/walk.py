"""Traversal of the nodes of a sub-topology.

Internal topics for retries and replays of failed records.
Each belongs to one source, has its partitions and is read by the same task through the same steps.
A sub-topology with state has none: its results depend on the order of records, and a retried record
arrives at another position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from eosframework.topology.graph.graph import (
    Aggregate,
    Answers,
    FoldKind,
    ForeignJoin,
    Function,
    GlobalTable,
    Graph,
    JoinSide,
    Lookup,
    Node,
    OnError,
    Policy,
    Processor,
    Repartition,
    RetryOf,
    Sink,
    Source,
    Step,
    Store,
    StreamJoin,
    Subscribe,
    SubTopology,
    Table,
    TableJoin,
    TableOutput,
    View,
)
from eosframework.topology.spec.keyed_spec import short
from eosframework.txnid import replay_topic, retry_topic

AnyNode = Source | Node


def nodes_of(part: SubTopology) -> Iterator[AnyNode]:
    """Yield every node once, each before those that follow it on its first path."""
    yield from _from(part.sources)


def nodes_after(source: Source) -> Iterator[AnyNode]:
    """Yield a source and each node that its records reach."""
    yield from _from((source,))


def may_change(node: Node) -> bool:
    """Return whether a function of the user gets the value that a node receives.

    Every function may change it, whether it is meant to or not.
    """
    match node:
        case Sink():
            return isinstance(node.topic, Function)
        case TableOutput():
            return False
        case Table():
            return any(map(may_change, node.children))
        case JoinSide(join=StreamJoin() as join):
            return any(join.keeps_unpaired)
        case Aggregate():
            return node.fold is not FoldKind.COUNT
        case _:
            return True


def _from(nodes: Sequence[AnyNode]) -> Iterator[AnyNode]:
    seen: set[int] = set()
    todo: list[AnyNode] = list(reversed(nodes))
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.extend(reversed([child for _, child in followers_of(node)]))


def followers_of(node: AnyNode) -> list[tuple[str, Node]]:
    """Return the nodes that receive a node's records, each with the label of its edge."""
    if isinstance(node, Sink | TableOutput):
        return []
    followers: list[tuple[str, Node]] = [("", child) for child in node.children]
    if isinstance(node, Step):
        for predicate, nodes in node.branches:
            label = "else" if predicate is None else predicate.name
            followers += [(label, child) for child in nodes]
    if isinstance(node, Subscribe):
        followers += [("foreign keys", child) for child in node.subscriptions]
    return followers


def policies_of(part: SubTopology) -> list[OnError]:
    """Return the error policy of each node."""
    found = [getattr(node, "on_error", None) for node in nodes_of(part)]
    return [policy for policy in found if isinstance(policy, OnError)]


def dead_letter_topics(graph: Graph) -> list[str]:
    """Return the dead-letter topics of a graph, sorted."""
    policies = [policy for part in graph.all_parts for policy in policies_of(part)]
    return sorted(
        {p.topic for p in policies if p.policy is Policy.DEAD_LETTER and p.topic is not None}
    )


def has_state(part: SubTopology) -> bool:
    """Return True if the results of a record depend on earlier records."""
    return any(not isinstance(node, Source | Step | Sink | TableOutput) for node in nodes_of(part))


def copartitioned_topics(part: SubTopology) -> tuple[frozenset[str], ...]:
    """Return the sets of two or more topics whose records reach the same store.

    A store is divided by partition, so a key that two topics have in different partitions would
    have two entries. Repartition topics are included. Topics that are merged without a store are
    not: no result depends on the partition of a key.
    """
    reached: dict[str, set[str]] = defaultdict(set)
    for source in part.sources:
        for store in _stores_reached(source):
            reached[store.name].add(source.topic)
    sets = {frozenset(topics) for topics in reached.values() if len(topics) > 1}
    return tuple(sorted(sets, key=sorted))


def _stores_reached(source: Source) -> Iterator[Store]:
    """Yield every store that a record of `source` can change or look up."""
    seen: set[int] = set()
    todo: list[AnyNode] = [source]
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield from stores_of(node)
            todo.extend(child for _, child in followers_of(node))


def stores_of(node: AnyNode) -> Iterator[Store]:
    """Yield the stores that a node changes or looks up."""
    match node:
        case Aggregate() | Table() | Subscribe():
            yield node.store
        case Processor():
            yield from node.stores.values()
        case Lookup():
            yield from stores_viewed(node.view)
        case JoinSide(join=StreamJoin() | ForeignJoin() as join):
            yield join.store
        case JoinSide(join=Answers() as join):
            yield join.store
            yield from stores_viewed(join.rows)
        case JoinSide(join=TableJoin() as join):
            yield from stores_viewed(join.left)
            yield from stores_viewed(join.right)
        case _:
            return


def stores_viewed(view: View) -> Iterator[Store]:
    """Yield the stores that a view reads."""
    match view.origin:
        case GlobalTable():
            return
        case TableJoin(left=left, right=right):
            yield from stores_viewed(left)
            yield from stores_viewed(right)
        case origin:
            yield origin.store


def with_retry_sources(application: str, part: SubTopology) -> SubTopology:
    """Return a sub-topology with a source for each of its retry and replay topics."""
    if has_state(part):
        return part
    added = [it for source in part.sources for it in _retry_sources(application, part, source)]
    waiting = {s.topic for s in added if s.retry_of is not None and s.retry_of.delay_ms is not None}
    return replace(
        part,
        sources=(*part.sources, *added),
        sink_topics=tuple(sorted({*part.sink_topics, *waiting})),
    )


def retry_topics_of(part: SubTopology) -> list[Repartition]:
    """Return the retry and replay topics of a sub-topology."""
    return [
        Repartition(source.topic, part.name, retry_of=source.retry_of)
        for source in part.sources
        if source.retry_of is not None
    ]


def without_retries(graph: Graph) -> Graph:
    """Return a graph whose failed records become dead letters at once."""
    return replace(
        graph,
        sub_topologies=tuple(_without_retries(part) for part in graph.sub_topologies),
        repartitions=tuple(own for own in graph.repartitions if own.retry_of is None),
    )


def _without_retries(part: SubTopology) -> SubTopology:
    own = {source.topic for source in part.sources if source.retry_of is not None}
    return replace(
        part,
        sources=tuple(source for source in part.sources if source.retry_of is None),
        sink_topics=tuple(topic for topic in part.sink_topics if topic not in own),
    )


def _retry_sources(application: str, part: SubTopology, source: Source) -> list[Source]:
    policies = policies_of(replace(part, sources=(source,)))
    delays = sorted({delay for policy in policies for delay in policy.retry_ms})
    added = [
        _twin(source, retry_topic(application, source.name, short(delay)), delay)
        for delay in delays
    ]
    if any(policy.replay for policy in policies):
        added.append(_twin(source, replay_topic(application, source.name), None))
    return added


def _twin(source: Source, topic: str, delay_ms: int | None) -> Source:
    suffix = "replay" if delay_ms is None else f"retry.{short(delay_ms)}"
    return replace(
        source,
        name=f"{source.name}.{suffix}",
        topic=topic,
        retry_of=RetryOf(source.topic, delay_ms),
    )
