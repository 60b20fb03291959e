"""Durability of acknowledged records: replicas of the application's and the brokers' topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eosframework.kafka.inspect.formats import CONSUMER_OFFSETS, TRANSACTION_STATE
from eosframework.operations.doctor.findings import Observation, Severity
from eosframework.operations.doctor.remedies import (
    add_replicas,
    alter_brokers,
    alter_topic,
    restart_with,
)
from eosframework.operations.doctor.snapshot import COORDINATION, Snapshot, number_of

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
    for topic, facts in snapshot.existing().items():
        if (facts.values or {}).get(name) == "true":
            fix = alter_topic(snapshot, topic, name, "false")
            yield Observation(f"topic {topic}", f"{name}=true", fix=fix)


def offline_partitions(snapshot: Snapshot) -> Iterator[Observation]:
    """Find partitions that cannot be read or written now."""
    for topic, facts in snapshot.existing().items():
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
    for topic, facts in snapshot.existing().items():
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
    for topic, facts in snapshot.existing().items():
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


CHECKS = {
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
