"""Internal topics whose settings no longer are those with which `apply` creates them."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.application.internal_topics import (
    TOMBSTONES_KEPT_SECONDS,
    InternalRole,
    InternalTopic,
    own_topics,
)
from eosframework.application.ownership_topic import READ_AGAIN_SECONDS, refuse_lost_ownership
from eosframework.application.ownership_topic import SETTINGS as OWNERSHIP_SETTINGS
from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.operations.doctor.findings import Observation, Severity
from eosframework.operations.doctor.remedies import alter_topic
from eosframework.operations.doctor.snapshot import Snapshot, number_of
from eosframework.txnid import ownership_topic

UNLIMITED_MS = (1 << 63) - 1
"""The brokers' default of message.timestamp.before.max.ms."""

Existing = dict[str, TopicDescription]


def internal_topics(snapshot: Snapshot) -> Iterator[Observation]:
    """Find settings of internal topics that lose records, refuse them, or stop the next start."""
    existing = snapshot.existing()
    sources = {name: found.partitions for name, found in existing.items()}
    names = own_topics(snapshot.graph, sources).keys()
    inputs = {name: count for name, count in sources.items() if name not in names}
    for topic in own_topics(snapshot.graph, inputs).values():
        if (found := existing.get(topic.name)) is not None:
            yield from _partitions(topic, found)
            yield from _changed(snapshot, topic, found)
            yield from _sizes(snapshot, topic, existing)
            yield from _times(snapshot, topic, found)


def _partitions(topic: InternalTopic, found: TopicDescription) -> Iterator[Observation]:
    if topic.partitions and found.partitions != topic.partitions:
        fix = "docs/howto/growing-partitions.md"
        if found.partitions < topic.partitions:
            fix = f"eosframework apply APP, if nothing was processed yet; otherwise {fix}"
        yield Observation(
            f"topic {topic.name}",
            f"{found.partitions} partitions",
            expected=f"{topic.partitions}, one for each task",
            fix=fix,
        )


def _changed(
    snapshot: Snapshot, topic: InternalTopic, found: TopicDescription
) -> Iterator[Observation]:
    """Compare the settings that `apply` sets; another check has those of row topics."""
    if topic.role is InternalRole.ROWS:
        return
    for name, wanted in topic.settings.items():
        value = (found.values or {}).get(name)
        if value is None or value == wanted:
            continue
        severity = None
        if name == "delete.retention.ms":
            if int(value) >= TOMBSTONES_KEPT_SECONDS * 1000:
                continue
            severity = Severity.WARNING  # Stores are rebuilt sooner; nothing is lost.
        yield Observation(
            f"topic {topic.name}",
            f"{name}={value}",
            expected=f"{name}={wanted}",
            fix=alter_topic(snapshot, topic.name, name, wanted),
            severity=severity,
        )


def _sizes(snapshot: Snapshot, topic: InternalTopic, existing: Existing) -> Iterator[Observation]:
    """Compare the size limit with that of the inputs; another check has that of retry topics."""
    if topic.role in (InternalRole.RETRY, InternalRole.REPLAY):
        return
    inputs = snapshot.existing(*snapshot.sources) if snapshot.sources else {}
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


def _times(
    snapshot: Snapshot, topic: InternalTopic, found: TopicDescription
) -> Iterator[Observation]:
    values = found.values or {}
    if values.get("message.timestamp.type") == "LogAppendTime":
        yield Observation(
            f"topic {topic.name}",
            "message.timestamp.type=LogAppendTime",
            expected="message.timestamp.type=CreateTime: event times are stored as timestamps",
            fix=alter_topic(snapshot, topic.name, "message.timestamp.type", "CreateTime"),
        )
    name = "message.timestamp.before.max.ms"
    limit_ms = number_of(values, name)
    if limit_ms is not None and limit_ms < UNLIMITED_MS:
        yield Observation(
            f"topic {topic.name}",
            f"{name}={limit_ms}",
            expected="no limit: changelogs and repartition topics take any event time",
            fix=alter_topic(snapshot, topic.name, name, UNLIMITED_MS),
        )


def ownership(snapshot: Snapshot) -> Iterator[Observation]:
    """Find an ownership topic that loses entries or their order, or is not the recorded one.

    A worker reads the topic from its beginning if its last reading was long ago. In between brokers
    have to keep the records of removals, or the worker keeps entries that were removed.
    """
    facts, name = snapshot.facts.read(), ownership_topic(snapshot.graph.application)
    found = facts.ownership
    if found is None:
        return
    try:
        refuse_lost_ownership(facts.control, found.topic_id if found.exists else None, name)
    except StartRefused as error:
        fix = "see docs/howto/producers.md; then eosframework apply APP"
        yield Observation(f"application {snapshot.graph.application}", str(error), fix=fix)
        return
    if found.partitions != 1:
        fix = "stop all workers, delete it, and run eosframework apply APP"
        yield Observation(f"topic {name}", f"{found.partitions} partitions", fix=fix)
    policy = (found.values or {}).get("cleanup.policy")
    if policy not in (None, "compact"):
        fix = alter_topic(snapshot, name, "cleanup.policy", "compact")
        yield Observation(f"topic {name}", f"cleanup.policy={policy}", fix=fix)
    kept_ms, setting = number_of(found.values, "delete.retention.ms"), "delete.retention.ms"
    if kept_ms is not None and kept_ms < 2 * READ_AGAIN_SECONDS * 1000:
        fix = alter_topic(snapshot, name, setting, OWNERSHIP_SETTINGS[setting])
        yield Observation(f"topic {name}", f"{setting}={kept_ms}", fix=fix)


CHECKS = {"internal-topics": internal_topics, "ownership-topic": ownership}
