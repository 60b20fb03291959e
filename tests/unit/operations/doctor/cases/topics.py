"""What checks of topics find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zlib import crc32

from eosframework.application.event_times import EventTimes
from eosframework.application.partitioner_checks import KeySample
from eosframework.application.topic_settings import TopicRole
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.kafka.client.partitioner import partition_of
from eosframework.operations.doctor.findings import Seen
from eosframework.operations.doctor.snapshot import Snapshot
from eosframework.topology.graph.graph import OnError, Policy
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve
from tests.unit.operations.doctor.case import Case, E, N, W
from tests.unit.operations.doctor.made_up import (
    GRAPH,
    TOPICS,
    created,
    facts,
    ms,
    snapshot,
    topic,
    with_properties,
    with_tables,
    with_topic,
    with_worker,
)

COUNTED = """\
application: shop
sources:
  orders: {topic: orders, key: string, value: json}
streams:
  counted:
    from: orders
    steps: [group_by: {by: "builtins:str", key: string}, count: {store: counts}]
    to: large
"""
CHANGELOG, REPARTITION = "shop-counts-changelog", "shop-counted-repartition"
INTERNAL = {
    CHANGELOG: created(TopicRole.CHANGELOG),
    REPARTITION: created(TopicRole.REPARTITION),
}


def with_ownership(partitions: int = 1, recorded: str = "id", **values: str) -> Snapshot:
    """An application that records entries of ownership, but for its topic."""
    known = facts()
    control = replace(known.control, ownership=recorded)
    found = created(TopicRole.OWNERSHIP, partitions, **values)
    return snapshot(facts=Seen(replace(known, control=control, ownership=found)))


def with_internal(name: str, partitions: int = 2, **values: str) -> Snapshot:
    """A healthy application with a changelog and a repartition topic, but for one of them."""
    found = INTERNAL[name].values or {}
    settings = {key.replace(".", "_"): value for key, value in found.items()}
    changed = INTERNAL | {name: topic(partitions, **{**settings, **values})}
    return snapshot(
        graph=resolve(read_yaml(COUNTED, "app.yaml")),
        topics={topic: Seen(known) for topic, known in {**TOPICS, **changed}.items()},
        facts=Seen(facts(topics={**TOPICS, **changed})),
    )


JOINED = """\
application: shop
sources:
  orders: {topic: orders, key: string, value: json}
  planes: {topic: planes, key: string, value: json, table: true}
streams:
  big: {from: orders, steps: [join: {with: planes, by: "builtins:max"}], to: large}
"""
OLD = {"orders": Seen(EventTimes(ms(days=6000), ms(days=5999)))}
AHEAD = {"orders": Seen(EventTimes(ms(hours=0), ms(hours=-9)))}


def joined_by_crc32(**worker: Any) -> Snapshot:
    """An application that joins two topics, one of which librdkafka has filled by its default."""
    graph = resolve(read_yaml(JOINED, "app.yaml"))
    keys = [f"key {number}".encode() for number in range(50)]
    samples = {
        "orders": KeySample("orders", 8, frozenset((key, crc32(key) % 8) for key in keys)),
        "planes": KeySample("planes", 8, frozenset((key, partition_of(key, 8)) for key in keys)),
    }
    known = Seen(facts(topics=dict.fromkeys(("orders", "planes", "large"), topic())))
    return replace(with_worker(**worker), graph=graph, keys=Seen(samples), facts=known)


def with_table(**values: Any) -> Snapshot:
    """An application that joins its orders with a table, whose topic has these settings."""
    topics = {**TOPICS, "planes": topic(**values)}
    return snapshot(
        graph=resolve(read_yaml(JOINED, "app.yaml")),
        topics={name: Seen(found) for name, found in topics.items()},
        facts=Seen(facts(topics=topics)),
    )


def _with_dead_letters(limit: int, *, input_bytes: int) -> Snapshot:
    """An application with dead letters, and what their topic and the input take."""
    [part] = GRAPH.sub_topologies
    policy = OnError(Policy.DEAD_LETTER, "dead")
    sources = tuple(replace(source, on_error=policy) for source in part.sources)
    topics = {
        **TOPICS,
        "orders": topic(max_message_bytes=str(input_bytes)),
        "dead": topic(max_message_bytes=str(limit)),
    }
    return snapshot(
        graph=replace(GRAPH, sub_topologies=(replace(part, sources=sources),)),
        topics={name: Seen(found) for name, found in topics.items()},
    )


CASES = [
    Case(
        "missing-topics",
        E,
        lambda: with_topic("large", TopicDescription(exists=False)),
        "does not exist",
        "eosframework apply APP",
    ),
    Case(
        "missing-topics",
        E,
        lambda: with_topic("orders", TopicDescription(exists=False)),
        "does not exist",
        "create it, or correct the name orders",
    ),
    Case(
        "missing-topics",
        E,
        lambda: with_tables("payments", exists=False),
        "does not exist",
        "create it, or correct the name payments",
    ),
    Case(
        "internal-topics",
        E,
        lambda: with_internal(CHANGELOG, partitions=1),
        "1 partitions",
        "eosframework apply APP",
    ),
    Case(
        "internal-topics",
        E,
        lambda: with_internal(CHANGELOG, cleanup_policy="delete"),
        "cleanup.policy=delete",
        "cleanup.policy=compact",
    ),
    Case(
        "internal-topics",
        W,
        lambda: with_internal(CHANGELOG, delete_retention_ms="86400000"),
        "delete.retention.ms=86400000",
        "delete.retention.ms=604800000",
    ),
    Case(
        "internal-topics",
        E,
        lambda: with_internal(REPARTITION, retention_ms="3600000"),
        "retention.ms=3600000",
        "retention.ms=-1",
    ),
    Case(
        "internal-topics",
        W,
        lambda: with_internal(REPARTITION, max_message_bytes="1000"),
        "max.message.bytes=1000, and orders has 1048588",
        "max.message.bytes=1048588",
    ),
    Case(
        "internal-topics",
        E,
        lambda: with_internal(CHANGELOG, message_timestamp_type="LogAppendTime"),
        "message.timestamp.type=LogAppendTime",
        "message.timestamp.type=CreateTime",
    ),
    Case(
        "internal-topics",
        E,
        lambda: with_internal(CHANGELOG, message_timestamp_before_max_ms="1"),
        "message.timestamp.before.max.ms=1",
        "message.timestamp.before.max.ms=9223372036854775807",
    ),
    Case(
        "topic-in-sync",
        W,
        lambda: with_internal(CHANGELOG, min_insync_replicas="1"),
        "min.insync.replicas=1",
        "min.insync.replicas=2",
    ),
    Case(
        "internal-topics",
        E,
        lambda: with_tables(values={"retention.ms": "604800000"}),
        "retention.ms=604800000",
        "retention.ms=-1",
    ),
    Case(
        "internal-topics",
        E,
        lambda: with_tables(values={"cleanup.policy": "compact,delete"}),
        "cleanup.policy=compact,delete",
        "cleanup.policy=delete",
    ),
    Case(
        "missing-topics",
        N,
        lambda: with_topic("shop-control", TopicDescription(exists=False)),
        "does not exist yet",
        "eosframework apply APP",
    ),
    Case(
        "chosen-outputs",
        N,
        lambda: snapshot(
            graph=replace(
                GRAPH,
                sub_topologies=(
                    replace(GRAPH.sub_topologies[0], dynamic_sinks=("big.to(route)",)),
                ),
            )
        ),
        "for each record",
        "name them",
    ),
    Case(
        "internal-topics",
        E,
        lambda: with_topic("shop-control", topic(1, cleanup_policy="delete")),
        "cleanup.policy=delete",
        "--entity-name shop-control --add-config cleanup.policy=compact",
    ),
    Case(
        "ownership-topic",
        E,
        lambda: with_ownership(cleanup_policy="compact,delete"),
        "cleanup.policy=compact,delete",
        "--entity-name shop-ownership --add-config cleanup.policy=compact",
    ),
    Case(
        "ownership-topic",
        E,
        lambda: with_ownership(delete_retention_ms="1000000"),
        "delete.retention.ms=1000000",
        "--add-config delete.retention.ms=1800000",
    ),
    Case(
        "ownership-topic",
        E,
        lambda: with_ownership(partitions=2),
        "2 partitions",
        "stop all workers, delete it",
    ),
    Case(
        "ownership-topic",
        E,
        lambda: with_ownership(recorded="another id"),
        "found id id, expected another id",
        "eosframework apply APP",
    ),
    Case(
        "compacted-topics",
        N,
        lambda: with_topic("large", topic(cleanup_policy="compact")),
        "cleanup.policy=compact",
        "cleanup.policy=delete",
    ),
    Case(
        "table-deletions",
        N,
        lambda: with_table(cleanup_policy="compact", delete_retention_ms="86400000"),
        "delete.retention.ms=86400000",
        "--entity-name planes --add-config delete.retention.ms=604800000",
    ),
    Case(
        "partitioner",
        E,
        joined_by_crc32,
        "murmur2 does not explain the partition of ",
        "partitioner=murmur2_random in the producers of orders",
    ),
    Case(
        "partitioner",
        W,
        lambda: joined_by_crc32(foreign_partitioner="warn"),
        "(CRC32 does: librdkafka's default)",
        "worker.foreign_partitioner=warn",
    ),
    Case(
        "batch-size",
        W,
        lambda: with_properties(batch_size=4_000_000),
        "max.message.bytes=1048588, batch.size=4000000",
        "remove batch.size",
    ),
    Case(
        "record-size",
        W,
        lambda: with_properties(message_max_bytes=50_000),
        "max.message.bytes=1048588, message.max.bytes=50000",
        "remove message.max.bytes",
    ),
    Case(
        "dead-letter-size",
        W,
        lambda: _with_dead_letters(1_048_588, input_bytes=5_000_000),
        "max.message.bytes=1048588, and orders has 5000000",
        "--entity-name dead --add-config max.message.bytes=5008192",
    ),
    Case(
        "dead-letter-size",
        N,
        lambda: _with_dead_letters(1_048_588, input_bytes=1_048_588),
        "max.message.bytes=1048588, and orders has 1048588",
        "--add-config max.message.bytes=1056780",
    ),
    Case(
        "append-time",
        W,
        lambda: with_topic("large", topic(message_timestamp_type="LogAppendTime")),
        "LogAppendTime",
        "--add-config message.timestamp.type=CreateTime",
    ),
    Case(
        "retention-by-event-time",
        W,
        lambda: snapshot(event_times=OLD),
        "retention.ms=604800000, and orders gives records of 2013-",
        "--entity-name large --add-config retention.ms=-1",
    ),
    Case(
        "refused-markers",
        E,
        lambda: with_topic("large", topic(message_timestamp_before_max_ms="1")),
        "message.timestamp.before.max.ms=1",
        "message.timestamp.before.max.ms=60000",
    ),
    Case(
        "refused-event-times",
        E,
        lambda: snapshot(event_times=AHEAD),
        "message.timestamp.after.max.ms=3600000",
        "message.timestamp.after.max.ms=",
    ),
]
