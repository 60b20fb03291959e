"""A made-up cluster in which nothing is amiss, and the same with changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from eosframework.application.control_topic import ControlState, interpret
from eosframework.application.event_times import EventTimes
from eosframework.application.start_checks import Facts, new_entries
from eosframework.application.topic_settings import TopicRole, settings_at_creation
from eosframework.config import KafkaSettings, Settings, WorkerSettings
from eosframework.kafka.admin.metadata import (
    GroupDescription,
    Placement,
    SizeLimits,
    TopicDescription,
)
from eosframework.kafka.inspect.coordinators import (
    ActiveProducer,
    TransactionDescription,
    TransactionListing,
)
from eosframework.kafka.inspect.decisions import Verdict
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.hanging import Health, OpenTransaction
from eosframework.kafka.inspect.probes import Clock, MetadataLevels
from eosframework.kafka.worker_clients import effective_consumer, effective_producer
from eosframework.operations.doctor.findings import Seen, Unseen
from eosframework.operations.doctor.snapshot import Snapshot
from eosframework.records import Position, TopicPartition
from eosframework.serialization.serdes import JSON
from eosframework.topology.graph.graph import Policy, TableSink
from tests.support.applications.graphs import graph_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
GRAPH = graph_of("shop", {"big": (["orders"], ["large"])})
EVERYTHING = frozenset({"Read", "Write", "Describe", "DescribeConfigs", "Create", "Delete"})
TOPIC_VALUES = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
}
BROKER_VALUES = {
    "transaction.partition.verification.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "transaction.max.timeout.ms": "900000",
    "transactional.id.expiration.ms": "604800000",
    "producer.id.expiration.ms": "86400000",
    "offsets.retention.minutes": "10080",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "auto.create.topics.enable": "false",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "50",
    "transaction.state.log.segment.bytes": "104857600",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "50",
    "min.insync.replicas": "2",
}


def topic(partitions: int = 2, **values: str) -> TopicDescription:
    settings = TOPIC_VALUES | {name.replace("_", "."): value for name, value in values.items()}
    return TopicDescription(
        exists=True,
        topic_id="id",
        partitions=partitions,
        replication_factor=3,
        max_message_bytes=int(settings["max.message.bytes"]),
        values=settings,
        allowed=EVERYTHING,
        placements=tuple(
            Placement(number, 1, (1, 2, 3), (1, 2, 3)) for number in range(partitions)
        ),
    )


def created(role: TopicRole, partitions: int = 2, **values: str) -> TopicDescription:
    """A topic as it is created, but for some settings."""
    stated = settings_at_creation(role, 3).items()
    return topic(partitions, **{name.replace(".", "_"): value for name, value in stated} | values)


TOPICS = {
    "orders": topic(),
    "large": topic(),
    "shop-control": created(TopicRole.CONTROL, 1),
    "__transaction_state": topic(50, cleanup_policy="compact"),
    "__consumer_offsets": topic(50, cleanup_policy="compact"),
}


def facts(**changes: Any) -> Facts:
    known = Facts(
        cluster_id="cluster-1",
        topics={name: TOPICS[name] for name in ("orders", "large")},
        control=ControlState(),
        committed=(Position("orders", 0, 4), Position("orders", 1, 17)),
    )
    entries = new_entries(GRAPH, known)
    entries["committed/big/orders/1"] = {"topic_id": "id"}
    return replace(known, control=interpret(entries), **changes)


def snapshot(settings: Settings | None = None, **changes: Any) -> Snapshot:
    settings = settings or Settings(worker=WorkerSettings(instance="one"))
    healthy = Snapshot(
        taken_at=NOW,
        graph=GRAPH,
        settings=settings,
        topics={name: Seen(found) for name, found in TOPICS.items()},
        brokers=Seen(dict.fromkeys((1, 2, 3), BROKER_VALUES)),
        producer=effective_producer(
            settings, SizeLimits(1_048_588, 1_048_588, are_all=True), "shop"
        ),
        consumer=effective_consumer("shop", settings),
        refused_properties=(),
        allowed_on_cluster=Seen(EVERYTHING),
        group=Seen(GroupDescription(("eosframework-consumer",), EVERYTHING)),
        facts=Seen(facts()),
        levels=Seen(MetadataLevels(dict.fromkeys((1, 2, 3), 30), 30)),
        clock=Seen(Clock(timedelta(milliseconds=40), timedelta(milliseconds=2))),
        open_transactions=Seen(()),
        open_offsets=Seen(()),
        ids=Seen((TransactionListing("shop:big:0", TxnState.COMPLETE_COMMIT, 7, 1),)),
        lacking={"shop:big:0": Seen("")},
        event_times={"orders": Seen(EventTimes(ms(hours=1), ms(minutes=1)))},
        leases=Seen(None),
        keys=Seen({}),
    )
    return replace(healthy, **changes)


def ms(**ago: float) -> int:
    return round((NOW - timedelta(**ago)).timestamp() * 1000)


def with_worker(**values: Any) -> Snapshot:
    return snapshot(Settings(worker=WorkerSettings(instance="one", **values)))


def with_properties(**values: Any) -> Snapshot:
    properties = {name.replace("_", "."): value for name, value in values.items()}
    return snapshot(
        Settings(kafka=KafkaSettings(properties=properties), worker=WorkerSettings(instance="one"))
    )


def with_brokers(**values: str | None) -> Snapshot:
    """A cluster in which all brokers differ from the healthy ones; None: they lack a setting."""
    changed = BROKER_VALUES | {name.replace("_", "."): value for name, value in values.items()}
    kept = {name: value for name, value in changed.items() if value is not None}
    return snapshot(brokers=Seen(dict.fromkeys((1, 2, 3), kept)))


def with_topic(name: str, found: TopicDescription | Unseen) -> Snapshot:
    topics = {topic: Seen(known) for topic, known in TOPICS.items()}
    return snapshot(topics={**topics, name: Seen(found)})


def with_tables(name: str = "shop-kept-rows", **changes: Any) -> Snapshot:
    """A healthy cluster in which an input and a topic of rows go to tables, but for one topic."""
    table_sinks = (
        TableSink("paid", "payments", JSON, JSON, (), Policy.FAIL),
        TableSink("kept", "shop-kept-rows", JSON, JSON, (), Policy.FAIL, "big"),
    )
    with_rows = graph_of("shop", {"big": (["orders"], ["large", "shop.kept.rows"])})
    kept = {"payments": topic(), "shop-kept-rows": created(TopicRole.ROWS)}
    kept[name] = replace(kept[name], **changes)
    return snapshot(
        graph=replace(with_rows, table_sinks=table_sinks),
        topics={topic: Seen(known) for topic, known in {**TOPICS, **kept}.items()},
        tables_group=Seen(GroupDescription(("eosframework-consumer",), EVERYTHING)),
    )


def open_in(place: str, health: Health, seconds: float = 5) -> OpenTransaction:
    partition = TopicPartition(place, 0)
    answers = TransactionDescription(
        "other:late:0",
        TxnState.ONGOING,
        9,
        0,
        1,
        timedelta(seconds=60),
        NOW - timedelta(seconds=seconds),
        (partition,),
    )
    return OpenTransaction(
        ActiveProducer(partition, 9, 0, None, None, 12),
        12,
        12,
        20,
        None if health is Health.UNKNOWN else answers,
        health,
        Verdict(False, "no transaction has them") if health is Health.UNKNOWN else None,
    )


FEW = replace(topic(), replication_factor=1)
"""A topic whose records are on one broker only."""

VERIFY = "transaction_partition_verification_enable"


def on_one_broker(*names: str) -> Snapshot:
    """A cluster of one broker, with topics of one replica, the brokers' own among them."""
    alone = replace(
        topic(1, min_insync_replicas="1"),
        replication_factor=1,
        placements=(Placement(0, 1, (1,), (1,)),),
    )
    one = dict(BROKER_VALUES)
    return snapshot(
        brokers=Seen({1: one}),
        topics={
            name: Seen(alone) for name in (*names, "__transaction_state", "__consumer_offsets")
        },
    )
