"""Internal topics for retries and replays of failed records.

Each belongs to one source, has its partitions and is read by the same task through the same steps.
A sub-topology with state has none: its results depend on the order of records, and a retried record
arrives at another position.
"""

from __future__ import annotations

from dataclasses import replace

from eosframework.topology.graph.graph import Graph, Repartition, RetryOf, Source, SubTopology
from eosframework.topology.graph.walk import has_state, policies_of
from eosframework.topology.spec.fields import short
from eosframework.txnid import replay_topic, retry_topic


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
