"""Event times of the records that are processed next, and outputs that would delete them.

Brokers delete a segment whose largest timestamp is older than retention.ms, whenever it was
written: history that is written today is deleted today.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eosframework.application.start_checks import Facts
from eosframework.application.topic_settings import alter_command
from eosframework.config import KafkaSettings
from eosframework.engine.conversions import as_milliseconds, moment
from eosframework.errors import raised_by_functions
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import Values
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.records import TopicPartition, partitions_of
from eosframework.topology.graph.graph import Graph, Sink, Source, SubTopology
from eosframework.topology.graph.walk import nodes_of

PARTITIONS = 16
RECORDS = 5
"""Sample size of each partition. If all is processed, the last records stand for the next ones."""


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The event times of a source's next records, in milliseconds since the epoch."""

    earliest_ms: int
    latest_ms: int


@dataclass(frozen=True, slots=True)
class ShortRetention:
    """An output whose retention deletes the next records soon after they are written."""

    topic: str
    source: str
    earliest_ms: int
    retention_ms: int

    def __str__(self) -> str:
        return (
            f"topic {self.topic} has retention.ms={self.retention_ms} and keeps records since "
            f"{moment(round(time.time() * 1000) - self.retention_ms)}, and {self.source} gives "
            f"records of {moment(self.earliest_ms)}: brokers delete them soon after they are "
            f"written. To keep them: {alter_command(self.topic, 'retention.ms', '-1')}"
        )


def retention_ms(values: Values | None) -> int | None:
    """Return for how long a topic keeps records by their event times; None: for ever."""
    found = values or {}
    text, by_time = found.get("retention.ms"), found.get("message.timestamp.type") == "CreateTime"
    if text is None or int(text) < 0 or not by_time:
        return None
    return int(text) if "delete" in (found.get("cleanup.policy") or "") else None


def kept_outputs(graph: Graph, facts: Facts) -> dict[str, int]:
    """Return for how long each output keeps records by their event times, in milliseconds."""
    names = set(graph.sink_topics) - graph.internal_topics
    kept = {name: _kept_ms(graph, facts, name) for name in names}
    return {name: ms for name, ms in kept.items() if ms is not None}


def short_retentions(
    graph: Graph, facts: Facts, settings: KafkaSettings, admin: ClusterAdmin
) -> Iterator[ShortRetention]:
    """Yield the outputs that would lose what the next records of a source give.

    Args:
        graph: of the application.
        facts: of the cluster.
        settings: connection to the cluster.
        admin: admin client of the same cluster.
    """
    committed = {p.topic_partition: p.offset for p in facts.committed if p.offset is not None}
    outputs, times = kept_outputs(graph, facts), dict[str, EventTimes | None]()
    found: dict[str, ShortRetention] = {}
    now_ms = round(time.time() * 1000)
    for part in graph.sub_topologies:
        kept = {name: ms for name, ms in outputs.items() if name in part.sink_topics}
        for source in _feeding(graph, part, set()) if kept else ():
            if source.topic not in times:
                count = facts.topics[source.topic].partitions
                times[source.topic] = (
                    next_event_times(settings, admin, committed, source, count) if count else None
                )
            if (seen := times[source.topic]) is None:
                continue
            for name, ms in kept.items():
                if now_ms - seen.earliest_ms > ms:
                    found.setdefault(name, ShortRetention(name, source.topic, seen.earliest_ms, ms))
    yield from found.values()


def _feeding(graph: Graph, part: SubTopology, seen: set[str]) -> Iterator[Source]:
    """Yield the sources outside of the application that a sub-topology depends on."""
    writers = {one.topic: one.writer for one in graph.repartitions}
    seen.add(part.name)
    for source in part.sources:
        if source.topic not in writers:
            yield source
        elif writers[source.topic] not in seen:
            yield from _feeding(graph, graph.sub_topology(writers[source.topic]), seen)


def _kept_ms(graph: Graph, facts: Facts, name: str) -> int | None:
    """Return how long an output keeps records, or will once `apply` has created it."""
    found = facts.topics.get(name)
    if found is None:
        return None
    if found.exists:
        return retention_ms(found.values)
    sinks = (node for part in graph.all_parts for node in nodes_of(part))
    stated: dict[str, str | None] = {}
    for sink in sinks:
        if isinstance(sink, Sink) and sink.topic == name:
            stated |= sink.settings
    return retention_ms({**_inherited(facts), **stated})


def _inherited(facts: Facts) -> dict[str, str | None]:
    """Return the brokers' defaults of the settings that decide how long records are kept."""
    values = next((found for found in facts.brokers.values() if found), None)
    if values is None:
        return {}
    units = (("ms", 1), ("minutes", 60_000), ("hours", 3_600_000))
    lengths = ((values.get(f"log.retention.{unit}"), size) for unit, size in units)
    return {
        "retention.ms": next((str(int(text) * size) for text, size in lengths if text), None),
        "cleanup.policy": values.get("log.cleanup.policy"),
        "message.timestamp.type": values.get("log.message.timestamp.type"),
    }


def next_event_times(
    settings: KafkaSettings,
    admin: ClusterAdmin,
    committed: Mapping[TopicPartition, int],
    source: Source,
    partitions: int,
) -> EventTimes | None:
    """Return the earliest and the latest event time; None: there is no record.

    Args:
        settings: connection to the cluster.
        admin: admin client of the same cluster.
        committed: next offsets of the application; a missing partition starts at its beginning.
        source: its timestamp function gives the event time, if it has one.
        partitions: number of partitions of its topic.
    """
    wanted = partitions_of({source.topic: min(partitions, PARTITIONS)})
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for partition, (first, end) in admin.log_bounds(wanted).items():
        start = max(first, committed.get(partition, first))
        if start >= end:
            start = max(first, end - RECORDS)
        ranges[partition] = (start, min(start + RECORDS, end))
    times = [
        time_ms
        for _, messages in read_ranges(settings, ranges)
        for message in messages
        for time_ms in _event_time(source, message)
    ]
    return EventTimes(min(times), max(times)) if times else None


def _event_time(source: Source, message: Any) -> Iterator[int]:
    """Yield a record's event time, if it has one; `on_error` handles others at run time."""
    if source.timestamp is None:
        yield message.timestamp()[1]
        return
    value = message.value()
    try:
        decoded = value if value is None or not source.value.decode else source.value.decode(value)
        yield as_milliseconds(source.timestamp.call(decoded))
    except raised_by_functions():  # any exception of a user's function
        return
