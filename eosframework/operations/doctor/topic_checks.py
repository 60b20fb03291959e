"""The application's topics: existence, and settings that affect its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from eosframework.application.event_times import EventTimes, retention_ms
from eosframework.application.internal_topics import InternalTopic, doubtful_settings, own_topics
from eosframework.application.ownership_topic import refuse_lost_ownership
from eosframework.application.partitioner_checks import misplaced_keys
from eosframework.application.topic_settings import Deviation, TopicRole, deviations
from eosframework.config import ForeignPartitioner
from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription, Values
from eosframework.kafka.inspect.formats import CONSUMER_OFFSETS, TRANSACTION_STATE
from eosframework.operations.doctor.findings import NotSeen, Observation, Severity, Unseen
from eosframework.operations.doctor.snapshot import (
    COORDINATION,
    WEEK_MS,
    Snapshot,
    add_replicas,
    alter_brokers,
    alter_topic,
    number_of,
    restart_with,
)
from eosframework.topology.graph.graph import SubTopology
from eosframework.topology.graph.walk import policies_of
from eosframework.txnid import ownership_topic

_OF_ALL_TOPICS = {"min.insync.replicas", "unclean.leader.election.enable"}
"""Settings that other checks compare, of every topic."""

Existing = dict[str, TopicDescription]


def internal_topics(snapshot: Snapshot) -> Iterator[Observation]:
    """Find settings of internal topics that lose records, refuse them, or stop the next start."""
    existing = snapshot.described
    sources = {name: found.partitions for name, found in existing.items()}
    names = own_topics(snapshot.graph, sources).keys()
    inputs = {name: count for name, count in sources.items() if name not in names}
    for topic in own_topics(snapshot.graph, inputs).values():
        if (found := existing.get(topic.name)) is not None:
            yield from _partitions(topic, found)
            yield from _settings(snapshot, topic.name, topic.role, found)
            yield from _sizes(snapshot, topic, existing)
    for name, found in snapshot.existing(snapshot.registry).items():
        yield from _settings(snapshot, name, TopicRole.CONTROL, found)


def _settings(
    snapshot: Snapshot, name: str, role: TopicRole, found: TopicDescription
) -> Iterator[Observation]:
    """Compare settings with the table; of several rows for one, the first that is not met."""
    seen: set[str] = set()
    for one in deviations(name, role, found):
        setting = one.requirement.setting
        if setting not in _OF_ALL_TOPICS | seen:
            seen.add(setting)
            yield _observed(snapshot, one)


def _observed(snapshot: Snapshot, one: Deviation) -> Observation:
    row = one.requirement
    return Observation(
        f"topic {one.topic}",
        f"{row.setting}={one.found}",
        expected=f"{row.setting}={row.expected}",
        why=f"{row.why[0].upper()}{row.why[1:]}.",
        fix=alter_topic(snapshot, one.topic, row.setting, row.value),
        severity=Severity.ERROR if row.refuses else Severity.WARNING,
    )


def append_time(snapshot: Snapshot) -> Iterator[Observation]:
    """Find inputs and outputs that replace event times."""
    existing = snapshot.described
    for one in doubtful_settings(snapshot.graph, existing):
        if one.role in (TopicRole.SOURCE, TopicRole.SINK):
            yield _observed(snapshot, one)


def _partitions(topic: InternalTopic, found: TopicDescription) -> Iterator[Observation]:
    if topic.partitions and found.partitions != topic.partitions:
        fix = "eosframework explain page growing-partitions"
        if found.partitions < topic.partitions:
            fix = f"eosframework apply APP, if nothing was processed yet; otherwise {fix}"
        yield Observation(
            f"topic {topic.name}",
            f"{found.partitions} partitions",
            expected=f"{topic.partitions}, one for each task",
            fix=fix,
        )


def _sizes(snapshot: Snapshot, topic: InternalTopic, existing: Existing) -> Iterator[Observation]:
    """Compare the size limit with that of the inputs; another check has that of retry topics."""
    if topic.role in (TopicRole.RETRY, TopicRole.REPLAY):
        return
    inputs = snapshot.existing(*snapshot.sources)
    limits = {name: found.max_message_bytes for name, found in inputs.items()}
    largest = max(limits, key=lambda name: limits[name], default=None)
    own = existing[topic.name].max_message_bytes
    if largest is not None and 0 < own < limits[largest]:
        yield Observation(
            f"topic {topic.name}",
            f"max.message.bytes={own}, and {largest} has {limits[largest]}",
            expected="at least the largest input's",
            fix=alter_topic(snapshot, topic.name, "max.message.bytes", limits[largest]),
            severity=Severity.WARNING,
        )


def ownership(snapshot: Snapshot) -> Iterator[Observation]:
    """Find an ownership topic that loses entries or their order, or is not the recorded one."""
    facts, name = snapshot.facts.read(), ownership_topic(snapshot.graph.application)
    found = facts.ownership
    if found is None:
        return
    try:
        refuse_lost_ownership(facts.control, found.topic_id if found.exists else None, name)
    except StartRefused as error:
        fix = "eosframework explain page producers; then eosframework apply APP"
        yield Observation(f"application {snapshot.graph.application}", str(error), fix=fix)
        return
    if found.partitions != 1:
        fix = "stop all workers, delete it, and run eosframework apply APP"
        yield Observation(f"topic {name}", f"{found.partitions} partitions", fix=fix)
    yield from _settings(snapshot, name, TopicRole.OWNERSHIP, found)


REPLICAS = 3
SEGMENT_BYTES = 104_857_600
"""The brokers' default of transaction.state.log.segment.bytes."""

_SETTINGS = {
    TRANSACTION_STATE: (
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
    ),
    CONSUMER_OFFSETS: (
        "offsets.topic.replication.factor",
        "min.insync.replicas",
        "offsets.topic.num.partitions",
    ),
}
"""By internal topic of the brokers: the settings with which it is created."""


@dataclass(frozen=True, slots=True)
class _Copies:
    """The current or future replication of a topic.

    Args:
        to_come: the topic does not exist, or may not be described: the brokers' settings apply.
    """

    about: str
    topic: str
    replicas: int
    min_in_sync: int | None
    to_come: bool = False


def one_broker(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a cluster of one broker, on which no topic can have more than one replica."""
    if (broker := _only_broker(snapshot)) is not None:
        yield Observation("the cluster", f"broker {broker} alone, so one replica of each topic")


def _only_broker(snapshot: Snapshot) -> int | None:
    """Return the broker, if all topics are on it and no other is known."""
    if isinstance(snapshot.brokers.found, Unseen) or len(snapshot.brokers.found) > 1:
        return None
    (broker,) = snapshot.brokers.found
    places = [place for facts in snapshot.described.values() for place in facts.placements]
    return broker if all(set(place.replicas) <= {broker} for place in places) else None


def coordination_replicas(snapshot: Snapshot) -> Iterator[Observation]:
    """Find too few replicas of the brokers' topics for transactions and offsets."""
    yield from _too_few(snapshot, _coordination(snapshot))


def coordination_in_sync(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a min.insync.replicas of the same topics that loses decisions or blocks them."""
    yield from _in_sync(snapshot, _coordination(snapshot))


def coordination_partitions(snapshot: Snapshot) -> Iterator[Observation]:
    """Find a number of partitions of the same topics that differs from the configured one."""
    for topic, facts in snapshot.existing(*COORDINATION).items():
        name = _SETTINGS[topic][2]
        for broker, values in snapshot.brokers.read().items():
            configured = number_of(values, name)
            if configured is not None and configured != facts.partitions:
                yield Observation(
                    f"broker {broker}",
                    f"{name}={configured}, and {topic} has {facts.partitions} partitions",
                    fix=restart_with(name, facts.partitions),
                )


def coordination_segments(snapshot: Snapshot) -> Iterator[Observation]:
    """Find transaction log segments that take long to load."""
    name = "transaction.state.log.segment.bytes"
    for broker, values in snapshot.brokers.read().items():
        size = number_of(values, name)
        if size is not None and size > SEGMENT_BYTES:
            yield Observation(f"broker {broker}", f"{name}={size}")


def topic_replicas(snapshot: Snapshot) -> Iterator[Observation]:
    """Find topics of the application with too few replicas."""
    yield from _too_few(snapshot, _own(snapshot))


def topic_in_sync(snapshot: Snapshot) -> Iterator[Observation]:
    """Find topics of the application whose min.insync.replicas loses records or blocks writes."""
    yield from _in_sync(snapshot, _own(snapshot))


def unclean_elections(snapshot: Snapshot) -> Iterator[Observation]:
    """Find topics whose leader may become a replica without all records."""
    name = "unclean.leader.election.enable"
    for topic, facts in snapshot.described.items():
        if (facts.values or {}).get(name) == "true":
            fix = alter_topic(snapshot, topic, name, "false")
            yield Observation(f"topic {topic}", f"{name}=true", fix=fix)


def offline_partitions(snapshot: Snapshot) -> Iterator[Observation]:
    """Find partitions that cannot be read or written now."""
    for topic, facts in snapshot.described.items():
        needed = number_of(facts.values, "min.insync.replicas") or 1
        for place in facts.placements:
            name = f"{topic}[{place.partition}]"
            brokers = ", ".join(map(str, sorted({*place.replicas} - {*place.in_sync})))
            if place.leader is None:
                yield Observation(name, "no leader", fix=f"start broker {brokers or 'of it'}")
            elif len(place.in_sync) < needed and topic not in snapshot.sources:
                yield Observation(
                    name,
                    f"{len(place.in_sync)} replicas in sync, min.insync.replicas={needed}",
                    fix=f"start broker {brokers}" if brokers else None,
                )


def lagging_replicas(snapshot: Snapshot) -> Iterator[Observation]:
    """Find topics with replicas out of sync."""
    for topic, facts in snapshot.described.items():
        behind = {
            broker for place in facts.placements for broker in {*place.replicas} - {*place.in_sync}
        }
        if behind:
            brokers = ", ".join(map(str, sorted(behind)))
            yield Observation(
                f"topic {topic}",
                f"replicas on broker {brokers} are not in sync",
                fix=f"check whether broker {brokers} is up and keeps up",
            )


def _own(snapshot: Snapshot) -> Iterator[_Copies]:
    for topic, facts in snapshot.described.items():
        if topic not in COORDINATION:
            in_sync = number_of(facts.values, "min.insync.replicas")
            yield _Copies(f"topic {topic}", topic, facts.replication_factor, in_sync)


def _coordination(snapshot: Snapshot) -> Iterator[_Copies]:
    existing = snapshot.existing(*COORDINATION)
    for topic in COORDINATION:
        if facts := existing.get(topic):
            in_sync = number_of(facts.values, "min.insync.replicas")
            yield _Copies(f"topic {topic}", topic, facts.replication_factor, in_sync)
            continue
        for broker, values in snapshot.brokers.read().items():
            replicas = number_of(values, _SETTINGS[topic][0])
            if replicas is not None:
                in_sync = number_of(values, _SETTINGS[topic][1])
                yield _Copies(f"broker {broker}, {topic} to come", topic, replicas, in_sync, True)


def _too_few(snapshot: Snapshot, topics: Iterator[_Copies]) -> Iterator[Observation]:
    if _only_broker(snapshot) is not None:
        return  # `one_broker` reports it, once for all topics.
    for copies in topics:
        if copies.replicas >= REPLICAS:
            continue
        if copies.to_come:
            fix = restart_with(_SETTINGS[copies.topic][0], REPLICAS)
        elif len(snapshot.brokers.read()) < REPLICAS:
            fix = f"run {REPLICAS} brokers; then {add_replicas(snapshot, copies.topic, REPLICAS)}"
        else:
            fix = add_replicas(snapshot, copies.topic, REPLICAS)
        found = f"{copies.replicas} replica{'s' if copies.replicas > 1 else ''}"
        yield Observation(copies.about, found, fix=fix)


def _in_sync(snapshot: Snapshot, topics: Iterator[_Copies]) -> Iterator[Observation]:
    """Judge min.insync.replicas; for two replicas no value is good, and `_too_few` reports them."""
    for copies in topics:
        in_sync, replicas = copies.min_in_sync, copies.replicas
        if in_sync is None:
            continue
        impossible = in_sync > replicas
        if not impossible and (replicas < REPLICAS or 1 < in_sync < replicas):
            continue
        name = _SETTINGS[copies.topic][1] if copies.to_come else "min.insync.replicas"
        wanted = 2 if replicas >= REPLICAS else 1
        stops_us = impossible and copies.topic not in snapshot.sources
        yield Observation(
            copies.about,
            f"{name}={in_sync} of {replicas} replica{'s' if replicas > 1 else ''}",
            fix=_in_sync_mend(snapshot, copies, name, wanted),
            severity=Severity.ERROR if stops_us else None,
        )


def _in_sync_mend(snapshot: Snapshot, copies: _Copies, name: str, wanted: int) -> str:
    if not copies.to_come:
        return alter_topic(snapshot, copies.topic, name, wanted)
    if name == "min.insync.replicas":
        return alter_brokers(snapshot, name, wanted)
    return restart_with(name, wanted)


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
    """Find outputs with compaction, and inputs that are no tables."""
    topics = set(snapshot.sources).difference(_tables(snapshot)).union(snapshot.sinks)
    for topic, policy, _ in _compacted(snapshot, topics):
        yield Observation(f"topic {topic}", f"cleanup.policy={policy}")


def table_deletions(snapshot: Snapshot) -> Iterator[Observation]:
    """Find tables whose deletions compaction removes soon."""
    for topic, _, values in _compacted(snapshot, _tables(snapshot)):
        kept_ms = number_of(values, "delete.retention.ms")
        if kept_ms is not None and kept_ms < WEEK_MS:
            fix = alter_topic(snapshot, topic, "delete.retention.ms", WEEK_MS)
            yield Observation(f"topic {topic}", f"delete.retention.ms={kept_ms}", fix=fix)


def _tables(snapshot: Snapshot) -> set[str]:
    """Return the topics of sources that are tables."""
    parts = snapshot.graph.sub_topologies
    return {source.topic for part in parts for source in part.sources if source.is_table}


def _compacted(snapshot: Snapshot, topics: Iterable[str]) -> Iterator[tuple[str, str, Values]]:
    """Yield each topic with compaction, its policy and its settings."""
    for topic, facts in snapshot.existing(*sorted(topics)).items():
        values = facts.values or {}
        policy = values.get("cleanup.policy") or ""
        if "compact" in policy:
            yield topic, policy, values


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
        for topic, facts in snapshot.existing(*topics).items():
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
        sinks = snapshot.existing(*part.sink_topics)
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
    "table-deletions": table_deletions,
    "partitioner": foreign_partitioners,
    "batch-size": batch_size,
    "record-size": record_size,
    "dead-letter-size": dead_letter_size,
    "retention-by-event-time": retention_by_event_time,
    "refused-event-times": refused_event_times,
    "refused-markers": refused_markers,
    "append-time": append_time,
    "internal-topics": internal_topics,
    "ownership-topic": ownership,
    "one-broker": one_broker,
    "coordination-replicas": coordination_replicas,
    "coordination-in-sync": coordination_in_sync,
    "coordination-partitions": coordination_partitions,
    "transaction-log-segment": coordination_segments,
    "topic-replicas": topic_replicas,
    "topic-in-sync": topic_in_sync,
    "unclean-election": unclean_elections,
    "offline-partitions": offline_partitions,
    "lagging-replicas": lagging_replicas,
}
