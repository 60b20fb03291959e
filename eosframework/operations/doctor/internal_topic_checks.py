"""Internal topics whose settings no longer are those with which `apply` creates them."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.application.internal_topics import (
    InternalTopic,
    doubtful_settings,
    own_topics,
)
from eosframework.application.ownership_topic import refuse_lost_ownership
from eosframework.application.topic_settings import Deviation, TopicRole, deviations
from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.operations.doctor.findings import Observation, Severity
from eosframework.operations.doctor.remedies import alter_topic
from eosframework.operations.doctor.snapshot import Snapshot
from eosframework.txnid import ownership_topic

_OF_ALL_TOPICS = {"min.insync.replicas", "unclean.leader.election.enable"}
"""Settings that other checks compare, of every topic."""

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
    existing = snapshot.existing()
    for one in doubtful_settings(snapshot.graph, existing):
        if one.role in (TopicRole.SOURCE, TopicRole.SINK):
            yield _observed(snapshot, one)


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


def _sizes(snapshot: Snapshot, topic: InternalTopic, existing: Existing) -> Iterator[Observation]:
    """Compare the size limit with that of the inputs; another check has that of retry topics."""
    if topic.role in (TopicRole.RETRY, TopicRole.REPLAY):
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


def ownership(snapshot: Snapshot) -> Iterator[Observation]:
    """Find an ownership topic that loses entries or their order, or is not the recorded one."""
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
    yield from _settings(snapshot, name, TopicRole.OWNERSHIP, found)


CHECKS = {
    "append-time": append_time,
    "internal-topics": internal_topics,
    "ownership-topic": ownership,
}
