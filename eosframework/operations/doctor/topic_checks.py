"""The application's topics: existence, and settings that affect its records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from eosframework.application.event_times import EventTimes, retention_ms
from eosframework.application.partitioner_checks import misplaced_keys
from eosframework.config import ForeignPartitioner
from eosframework.kafka.admin.metadata import TopicDescription, Values
from eosframework.operations.doctor.findings import NotSeen, Observation, Severity
from eosframework.operations.doctor.remedies import alter_topic
from eosframework.operations.doctor.snapshot import Snapshot, number_of
from eosframework.topology.graph.graph import SubTopology
from eosframework.topology.graph.walk import policies_of

DEAD_LETTER_HEADERS_BYTES = 8192
"""Upper bound of a dead letter's headers, including the error and the names in them."""


MARKER_MS = 60_000
"""Assumed to exceed the time until a broker appends a marker, and the difference of two clocks."""


def missing_topics(snapshot: Snapshot) -> Iterator[Observation]:
    """Find topics that do not exist."""
    for name, seen in snapshot.topics.items():
        if not isinstance(seen.found, TopicDescription) or seen.found.exists:
            continue
        if name in (*snapshot.sinks, *snapshot.graph.changelog_topics):
            yield Observation(f"topic {name}", "does not exist", fix="eosframework apply APP")
        elif name in (*snapshot.sources, *snapshot.persisted):
            fix = f"create it, or correct the name {name} in the topology"
            yield Observation(f"topic {name}", "does not exist", fix=fix)
        elif name == snapshot.registry:
            yield Observation(
                f"topic {name}",
                "does not exist yet",
                expected="nothing before the first start",
                why="The first start creates it.",
                fix="eosframework apply APP, where a worker may not create topics",
                severity=Severity.NOTE,
            )


def chosen_outputs(snapshot: Snapshot) -> Iterator[Observation]:
    """Report outputs whose topic a function chooses for each record."""
    for part in snapshot.graph.sub_topologies:
        for name in part.dynamic_sinks:
            yield Observation(f"output {name}", "a function chooses its topics for each record")


def compacted_topics(snapshot: Snapshot) -> Iterator[Observation]:
    """Find inputs and outputs with compaction."""
    for topic, facts in snapshot.existing(*snapshot.sources, *snapshot.sinks).items():
        policy = (facts.values or {}).get("cleanup.policy") or ""
        if "compact" in policy:
            yield Observation(f"topic {topic}", f"cleanup.policy={policy}")


def batch_size(snapshot: Snapshot) -> Iterator[Observation]:
    """Find outputs that reject a full batch although each record fits."""
    size = int(snapshot.producer.get("batch.size", 0))
    for topic, facts in snapshot.existing(*snapshot.sinks).items():
        if facts.max_message_bytes and size > facts.max_message_bytes:
            yield Observation(
                f"topic {topic}",
                f"max.message.bytes={facts.max_message_bytes}, batch.size={size}",
                fix=f"remove batch.size from kafka.properties, or "
                f"{alter_topic(snapshot, topic, 'max.message.bytes', size)}",
            )


def record_size(snapshot: Snapshot) -> Iterator[Observation]:
    """Find outputs that accept larger records than the producers send."""
    size = int(snapshot.producer.get("message.max.bytes", 0))
    for topic, facts in snapshot.existing(*snapshot.sinks).items():
        if facts.max_message_bytes > size > 0:
            yield Observation(
                f"topic {topic}",
                f"max.message.bytes={facts.max_message_bytes}, message.max.bytes={size}",
            )


def dead_letter_size(snapshot: Snapshot) -> Iterator[Observation]:
    """Find dead-letter and retry topics that reject the largest input records."""
    for part in snapshot.graph.sub_topologies:
        sources = snapshot.existing(*(source.topic for source in part.sources))
        largest = max(sources.items(), key=lambda item: item[1].max_message_bytes, default=None)
        topics = _failed_record_topics(snapshot, part)
        for topic, facts in snapshot.existing(*topics).items() if topics else ():
            if largest is None or not facts.max_message_bytes:
                continue
            source, size = largest[0], largest[1].max_message_bytes
            if facts.max_message_bytes >= size + DEAD_LETTER_HEADERS_BYTES:
                continue
            yield Observation(
                f"topic {topic}",
                f"max.message.bytes={facts.max_message_bytes}, and {source} has {size}",
                fix=alter_topic(
                    snapshot, topic, "max.message.bytes", size + DEAD_LETTER_HEADERS_BYTES
                ),
                severity=Severity.NOTE if facts.max_message_bytes >= size else None,
            )


def _failed_record_topics(snapshot: Snapshot, part: SubTopology) -> set[str]:
    """Return the dead-letter and retry topics of a sub-topology."""
    dead_letters = {policy.topic for policy in policies_of(part) if policy.topic is not None}
    own = (it for it in snapshot.graph.repartitions if it.writer == part.name)
    return dead_letters | {it.topic for it in own if it.retry_of is not None}


def retention_by_event_time(snapshot: Snapshot) -> Iterator[Observation]:
    """Find outputs whose retention deletes new records because of their event times."""
    for source, times, topic, values in _written_times(snapshot):
        kept_ms, age_ms = retention_ms(values), _now_ms(snapshot) - times.earliest_ms
        if kept_ms is not None and age_ms > kept_ms:
            yield Observation(
                f"topic {topic}",
                f"retention.ms={kept_ms}, and {source} gives records of {_date(times.earliest_ms)}",
                expected=f"more than their age, {_length(age_ms)}",
                fix=alter_topic(snapshot, topic, "retention.ms", -1),
            )


def refused_event_times(snapshot: Snapshot) -> Iterator[Observation]:
    """Find outputs whose brokers reject the event times of the next records."""
    now = _now_ms(snapshot)
    for source, times, topic, values in _written_times(snapshot):
        for name, distance_ms, end in (
            ("message.timestamp.before.max.ms", now - times.earliest_ms, times.earliest_ms),
            ("message.timestamp.after.max.ms", times.latest_ms - now, times.latest_ms),
        ):
            limit_ms = number_of(values, name)
            if limit_ms is not None and distance_ms > limit_ms:
                yield Observation(
                    f"topic {topic}",
                    f"{name}={limit_ms}, and {source} gives records of {_date(end)}",
                    expected=f"more than {_length(distance_ms)}",
                    fix=alter_topic(snapshot, topic, name, (1 << 63) - 1),
                )


def refused_markers(snapshot: Snapshot) -> Iterator[Observation]:
    """Find outputs whose brokers may reject the marker that ends a transaction."""
    for topic, facts in snapshot.existing(*snapshot.sinks).items():
        values = facts.values or {}
        if values.get("message.timestamp.type") != "CreateTime":
            continue
        for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
            limit_ms = number_of(values, name)
            if limit_ms is not None and limit_ms < MARKER_MS:
                yield Observation(
                    f"topic {topic}",
                    f"{name}={limit_ms}",
                    expected=f"at least {MARKER_MS}",
                    fix=alter_topic(snapshot, topic, name, MARKER_MS),
                )


def foreign_partitioners(snapshot: Snapshot) -> Iterator[Observation]:
    """Find co-partitioned inputs whose keys are not in their murmur2 partitions."""
    refuses = snapshot.settings.worker.foreign_partitioner is ForeignPartitioner.REFUSE
    for one in misplaced_keys(snapshot.graph, snapshot.keys.read()):
        severity = Severity.ERROR if one.is_foreign and refuses else Severity.WARNING
        yield Observation(f"topic {one.sample.topic}", one.found, fix=one.fix, severity=severity)


def _written_times(snapshot: Snapshot) -> Iterator[tuple[str, EventTimes, str, Values]]:
    """Yield each source's event times with each output that preserves event times."""
    unseen: NotSeen | None = None
    for part in snapshot.graph.sub_topologies:
        sinks = snapshot.existing(*part.sink_topics) if part.sink_topics else {}
        for source in part.sources:
            try:
                seen = snapshot.event_times.get(source.topic)
                times = seen.read() if seen else None
            except NotSeen as error:
                unseen = error
                continue
            for topic, facts in sinks.items() if times else ():
                values = facts.values or {}
                if times and values.get("message.timestamp.type") == "CreateTime":
                    yield source.topic, times, topic, values
    if unseen is not None:
        raise unseen


def _now_ms(snapshot: Snapshot) -> int:
    return round(snapshot.taken_at.timestamp() * 1000)


def _date(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms after 1970"


def _length(milliseconds: int) -> str:
    """Return a duration in the largest unit with a value of at least two."""
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000)):
        if milliseconds >= 2 * size:
            return f"{milliseconds // size} {unit}"
    return str(timedelta(milliseconds=milliseconds))


CHECKS = {
    "missing-topics": missing_topics,
    "chosen-outputs": chosen_outputs,
    "compacted-topics": compacted_topics,
    "partitioner": foreign_partitioners,
    "batch-size": batch_size,
    "record-size": record_size,
    "dead-letter-size": dead_letter_size,
    "retention-by-event-time": retention_by_event_time,
    "refused-event-times": refused_event_times,
    "refused-markers": refused_markers,
}
