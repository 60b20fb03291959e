"""Every check finds what it is for in a made-up cluster, and nothing in a healthy one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eosframework.cli.doctor import markdown
from eosframework.config import KafkaSettings, Settings, WorkerSettings
from eosframework.doctor import CHECKS, Finding, Severity, examine
from eosframework.doctor.findings import Seen, Unseen
from eosframework.doctor.snapshot import EventTimes, Snapshot
from eosframework.kafka.admin import GroupFacts, Placement, TopicFacts
from eosframework.kafka.guards import Facts, registrations
from eosframework.kafka.registry import Registered, interpret
from eosframework.kafka.transactions.coordinators import ActiveProducer, Described, Listed
from eosframework.kafka.transactions.formats import State
from eosframework.kafka.transactions.hanging import Health, OpenTransaction
from eosframework.kafka.transactions.probing import Clock
from eosframework.kafka.worker_clients import effective_consumer, effective_producer
from eosframework.records import Position, TopicPartition
from eosframework.serdes import JSON
from eosframework.topology.graph import Persister, Policy
from eosframework.txnid import TransactionalId
from tests.support.graphs import graph_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
GRAPH = graph_of("shop", {"big": (["orders"], ["large"])})
EVERYTHING = frozenset({"Read", "Write", "Describe", "DescribeConfigs", "Create"})
TOPIC_VALUES = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "max.message.bytes": "1048588",
}
BROKER_VALUES = {
    "transaction.partition.verification.enable": "true",
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


def topic(partitions: int = 2, **values: str) -> TopicFacts:
    settings = TOPIC_VALUES | {name.replace("_", "."): value for name, value in values.items()}
    return TopicFacts(
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


TOPICS = {
    "orders": topic(),
    "large": topic(),
    "shop.registry": topic(1, cleanup_policy="compact"),
    "__transaction_state": topic(50, cleanup_policy="compact"),
    "__consumer_offsets": topic(50, cleanup_policy="compact"),
}


def facts(**changes: Any) -> Facts:
    known = Facts(
        cluster_id="cluster-1",
        topics={name: TOPICS[name] for name in ("orders", "large")},
        registered=Registered(),
        committed=(Position("orders", 0, 4), Position("orders", 1, 17)),
    )
    entries = registrations(GRAPH, known)
    entries["committed/big/orders/1"] = {"topic_id": "id"}
    return replace(known, registered=interpret(entries), **changes)


def snapshot(settings: Settings | None = None, **changes: Any) -> Snapshot:
    settings = settings or Settings(worker=WorkerSettings(instance="one"))
    healthy = Snapshot(
        taken_at=NOW,
        graph=GRAPH,
        settings=settings,
        sources=("orders",),
        sinks=("large",),
        registry="shop.registry",
        topics={name: Seen(found) for name, found in TOPICS.items()},
        brokers=Seen(dict.fromkeys((1, 2, 3), BROKER_VALUES)),
        producer=effective_producer(settings, 1_048_588, "shop"),
        consumer=effective_consumer("shop", settings),
        refused_properties=(),
        allowed_on_cluster=Seen(EVERYTHING),
        group=Seen(GroupFacts(("eosframework-consumer",), EVERYTHING)),
        facts=Seen(facts()),
        levels=Seen(dict.fromkeys((1, 2, 3), 30)),
        clock=Seen(Clock(timedelta(milliseconds=40), timedelta(milliseconds=2))),
        open_transactions=Seen(()),
        open_offsets=Seen(()),
        ids=Seen((Listed("shop-big-0", State.COMPLETE_COMMIT, 7, 1),)),
        lacking={"shop-big-0": Seen("")},
        event_times={"orders": Seen(EventTimes(ms(hours=1), ms(minutes=1)))},
        leases=Seen(None),
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


def with_topic(name: str, found: TopicFacts | Unseen) -> Snapshot:
    topics = {topic: Seen(known) for topic, known in TOPICS.items()}
    return snapshot(topics={**topics, name: Seen(found)})


def with_tables(name: str = "shop.kept.rows", **changes: Any) -> Snapshot:
    """A healthy cluster in which an input and a topic of rows go to tables, but for one topic."""
    persisters = (
        Persister("paid", "payments", JSON, JSON, (), Policy.FAIL),
        Persister("kept", "shop.kept.rows", JSON, JSON, (), Policy.FAIL, "big"),
    )
    rows = topic(retention_ms="-1", retention_bytes="-1")
    kept = {"payments": topic(), "shop.kept.rows": rows}
    kept[name] = replace(kept[name], **changes)
    return snapshot(
        graph=replace(GRAPH, persisters=persisters),
        topics={topic: Seen(known) for topic, known in {**TOPICS, **kept}.items()},
        sinks=("large", "shop.kept.rows"),
        persisted=("payments", "shop.kept.rows"),
        tables_group=Seen(GroupFacts(("eosframework-consumer",), EVERYTHING)),
    )


def open_in(place: str, health: Health, seconds: float = 5) -> OpenTransaction:
    partition = TopicPartition(place, 0)
    told = Described(
        "other-late-0",
        State.ONGOING,
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
        None if health is Health.UNKNOWN else told,
        health,
    )


@dataclass(frozen=True)
class Case:
    """A cluster with one thing amiss, and what has to be said about it."""

    check: str
    severity: Severity
    cluster: Callable[[], Snapshot]
    found: str
    mend: str


E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE
VERIFY = "transaction_partition_verification_enable"
FEW = replace(topic(), replication_factor=1)
OLD = {"orders": Seen(EventTimes(ms(days=6000), ms(days=5999)))}
AHEAD = {"orders": Seen(EventTimes(ms(hours=0), ms(hours=-9)))}

CASES = [
    Case(
        "transaction-verification",
        E,
        lambda: with_brokers(**{VERIFY: "false"}),
        "=false",
        "--add-config transaction.partition.verification.enable=true",
    ),
    Case(
        "transaction-verification",
        E,
        lambda: with_brokers(**{VERIFY: None}),
        "older than Kafka 3.6",
        "upgrade",
    ),
    Case(
        "broker-versions",
        N,
        lambda: snapshot(levels=Seen({1: 29, 2: 30})),
        "broker 1 29, broker 2 30",
        "upgrade",
    ),
    Case(
        "longest-transaction",
        E,
        lambda: with_brokers(transaction_max_timeout_ms="20000"),
        "transaction.max.timeout.ms=20000",
        "--set worker.transaction_timeout_seconds=20",
    ),
    Case(
        "transactional-id-expiration",
        W,
        lambda: with_brokers(transactional_id_expiration_ms="60000"),
        "=60000",
        "=604800000",
    ),
    Case(
        "producer-id-expiration",
        W,
        lambda: with_brokers(producer_id_expiration_ms="60000"),
        "=60000",
        "=86400000",
    ),
    Case(
        "offsets-retention",
        W,
        lambda: with_brokers(offsets_retention_minutes="60"),
        "offsets.retention.minutes=60",
        "offsets.retention.minutes=10080",
    ),
    Case(
        "expired-transaction-interval",
        W,
        lambda: with_brokers(transaction_abort_timed_out_transaction_cleanup_interval_ms="3600000"),
        "=3600000",
        "=10000",
    ),
    Case(
        "session-limits",
        E,
        lambda: with_brokers(group_max_session_timeout_ms="30000"),
        "group.max.session.timeout.ms=30000",
        "worker.session_timeout_seconds=30",
    ),
    Case(
        "session-limits",
        E,
        lambda: with_brokers(group_min_session_timeout_ms="60000"),
        "group.min.session.timeout.ms=60000",
        "worker.session_timeout_seconds=60",
    ),
    Case(
        "automatic-topics",
        N,
        lambda: with_brokers(auto_create_topics_enable="true"),
        "auto.create.topics.enable=true",
        "auto.create.topics.enable=false",
    ),
    Case(
        "coordination-replicas",
        W,
        lambda: with_topic("__transaction_state", FEW),
        "1 replica",
        "3 brokers for each partition of __transaction_state",
    ),
    Case(
        "coordination-replicas",
        W,
        lambda: replace(
            with_brokers(transaction_state_log_replication_factor="1"),
            topics={"__transaction_state": Seen(TopicFacts(exists=False))},
        ),
        "1 replica",
        "transaction.state.log.replication.factor=3 in every broker's",
    ),
    Case(
        "coordination-in-sync",
        W,
        lambda: with_topic("__transaction_state", topic(50, min_insync_replicas="1")),
        "min.insync.replicas=1 of 3",
        "--add-config min.insync.replicas=2",
    ),
    Case(
        "coordination-in-sync",
        E,
        lambda: with_topic("__transaction_state", topic(50, min_insync_replicas="4")),
        "min.insync.replicas=4 of 3",
        "--add-config min.insync.replicas=2",
    ),
    Case(
        "coordination-partitions",
        W,
        lambda: with_brokers(transaction_state_log_num_partitions="10"),
        "num.partitions=10, and __transaction_state has 50",
        "num.partitions=50",
    ),
    Case(
        "transaction-log-segment",
        W,
        lambda: with_brokers(transaction_state_log_segment_bytes="2000000000"),
        "=2000000000",
        "=104857600",
    ),
    Case("topic-replicas", W, lambda: with_topic("large", FEW), "1 replica", "partition of large"),
    Case(
        "topic-in-sync",
        W,
        lambda: with_topic("large", topic(min_insync_replicas="3")),
        "min.insync.replicas=3 of 3",
        "--entity-name large --add-config min.insync.replicas=2",
    ),
    Case(
        "topic-in-sync",
        E,
        lambda: with_topic("large", replace(FEW, values=TOPIC_VALUES)),
        "min.insync.replicas=2 of 1",
        "min.insync.replicas=1",
    ),
    Case(
        "unclean-election",
        W,
        lambda: with_topic("large", topic(unclean_leader_election_enable="true")),
        "=true",
        "--entity-name large --add-config unclean.leader.election.enable=false",
    ),
    Case(
        "offline-partitions",
        E,
        lambda: with_topic("orders", replace(topic(), placements=(Placement(0, None, (2,), ()),))),
        "no leader",
        "broker 2",
    ),
    Case(
        "offline-partitions",
        E,
        lambda: with_topic(
            "large", replace(topic(), placements=(Placement(0, 1, (1, 2, 3), (1,)),))
        ),
        "1 replicas in sync, min.insync.replicas=2",
        "start broker 2, 3",
    ),
    Case(
        "lagging-replicas",
        W,
        lambda: with_topic(
            "large", replace(topic(), placements=(Placement(0, 1, (1, 2, 3), (1, 2)),))
        ),
        "replicas on broker 3 are not in sync",
        "broker 3",
    ),
    Case(
        "missing-topics",
        E,
        lambda: with_topic("large", TopicFacts(exists=False)),
        "does not exist",
        "eosframework apply APP",
    ),
    Case(
        "missing-topics",
        E,
        lambda: with_topic("orders", TopicFacts(exists=False)),
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
        "rows-retention",
        W,
        lambda: with_tables(values=TOPIC_VALUES),
        "retention.ms=604800000",
        "retention.ms=-1",
    ),
    Case(
        "rows-retention",
        W,
        lambda: with_tables(values={"cleanup.policy": "compact,delete"}),
        "cleanup.policy=compact,delete",
        "cleanup.policy=delete",
    ),
    Case(
        "missing-topics",
        N,
        lambda: with_topic("shop.registry", TopicFacts(exists=False)),
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
        "chosen for each record",
        "name them",
    ),
    Case(
        "registry-compaction",
        E,
        lambda: with_topic("shop.registry", topic(1, cleanup_policy="delete")),
        "cleanup.policy=delete",
        "--entity-name shop.registry --add-config cleanup.policy=compact",
    ),
    Case(
        "compacted-topics",
        N,
        lambda: with_topic("large", topic(cleanup_policy="compact")),
        "cleanup.policy=compact",
        "cleanup.policy=delete",
    ),
    Case(
        "batch-size",
        W,
        lambda: with_properties(batch_size=4_000_000),
        "max.message.bytes=1048588, batch.size=4000000",
        "remove batch.size",
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
        "refused-event-times",
        E,
        lambda: snapshot(event_times=AHEAD),
        "message.timestamp.after.max.ms=3600000",
        "message.timestamp.after.max.ms=",
    ),
    Case(
        "guarantee",
        W,
        lambda: with_worker(guarantee="at_least_once"),
        "at_least_once",
        "worker.guarantee=exactly_once",
    ),
    Case(
        "refused-properties",
        E,
        lambda: snapshot(refused_properties=("librdkafka has no property 'x'",)),
        "no property 'x'",
        "remove",
    ),
    Case(
        "ignored-properties",
        W,
        lambda: with_properties(max_poll_interval_ms=9000),
        "9000; a worker uses 300000",
        "remove it from kafka.properties",
    ),
    Case(
        "delivery-timeout",
        E,
        lambda: with_properties(message_timeout_ms=60_000),
        "message.timeout.ms=60000, transaction.timeout.ms=30000",
        "remove message.timeout.ms",
    ),
    Case(
        "request-timeout",
        E,
        lambda: with_properties(socket_timeout_ms=60_000),
        "socket.timeout.ms=60000",
        "remove socket.timeout.ms",
    ),
    Case(
        "room-to-repeat",
        N,
        lambda: with_worker(transaction_timeout_seconds=10),
        "socket.timeout.ms=10000, message.timeout.ms=8000",
        "kafka.properties.socket.timeout.ms=4000",
    ),
    Case(
        "poll-interval",
        W,
        lambda: with_worker(transaction_timeout_seconds=600),
        "max.poll.interval.ms=300000",
        "worker.transaction_timeout_seconds=150",
    ),
    Case(
        "heartbeats",
        W,
        lambda: snapshot(consumer={**snapshot().consumer, "heartbeat.interval.ms": 20_000}),
        "heartbeat.interval.ms=20000",
        "worker.heartbeat_interval_seconds=15",
    ),
    Case(
        "instance-name",
        N,
        lambda: snapshot(Settings()),
        "derived from this host's name",
        "--set worker.instance=NAME",
    ),
    Case(
        "clock",
        W,
        lambda: snapshot(clock=Seen(Clock(timedelta(seconds=9), timedelta(seconds=1)))),
        "9.0 s behind the controller's",
        "NTP",
    ),
    Case(
        "clock",
        N,
        lambda: snapshot(clock=Seen(Clock(timedelta(seconds=9), timedelta(seconds=6)))),
        "took 12.0 s",
        "NTP",
    ),
    Case("readers", N, snapshot, "do not tell the isolation.level", "read_committed"),
    Case(
        "registry-cluster",
        E,
        lambda: snapshot(facts=Seen(facts(cluster_id="cluster-2"))),
        "made on cluster cluster-1",
        "bootstrap_servers",
    ),
    Case(
        "application-name",
        E,
        lambda: snapshot(
            facts=Seen(
                replace(
                    facts(),
                    registered=interpret({"topic/other": {"topic_id": "id-8", "partitions": 1}}),
                )
            )
        ),
        "reads other, and this topology reads orders",
        "another name",
    ),
    Case(
        "group-members",
        E,
        lambda: snapshot(group=Seen(GroupFacts(("sarama", "eosframework-x"), EVERYTHING))),
        "1 members of client.id sarama",
        "stop them",
    ),
    Case(
        "group-members",
        E,
        lambda: replace(with_tables(), tables_group=Seen(GroupFacts(("sarama",), EVERYTHING))),
        "1 members of client.id sarama",
        "stop them",
    ),
    Case(
        "changed-topics",
        E,
        lambda: snapshot(
            facts=Seen(facts(topics={"orders": replace(topic(), topic_id="new"), "large": topic()}))
        ),
        "deleted and created again",
        "positions set APP TOPIC=earliest",
    ),
    Case(
        "lost-offsets",
        E,
        lambda: snapshot(facts=Seen(facts(committed=(Position("orders", 1, None),)))),
        "has committed orders[1] before",
        "positions set APP",
    ),
    Case(
        "partition-counts",
        E,
        lambda: replace(
            with_topic("large", topic(4)),
            graph=graph_of("shop", {"big": (["orders", "large"], [])}),
            sources=("orders", "large"),
            facts=Seen(facts()),
        ),
        "large=4, orders=2",
        "the same number",
    ),
    Case(
        "foreign-ids",
        W,
        lambda: snapshot(ids=Seen((Listed("shop-Other", State.EMPTY, 7, 1),))),
        "no id of eosframework's",
        "eosframework txn describe shop-Other",
    ),
    Case(
        "foreign-ids",
        W,
        lambda: snapshot(ids=Seen((Listed("shop-small-0", State.EMPTY, 7, 1),))),
        "sub-topology small; this topology has big",
        "txn describe shop-small-0",
    ),
    Case(
        "leased-ids",
        E,
        lambda: snapshot(leases=Seen(Unseen("leased transactional ids", "no id left for 2 tasks"))),
        "no id left for 2 tasks",
        "eosframework ids add APP ID...",
    ),
    Case(
        "ids-in-use",
        N,
        lambda: snapshot(
            group=Seen(GroupFacts((), EVERYTHING)),
            ids=Seen((Listed("shop-big-0", State.ONGOING, 7, 1),)),
        ),
        "the group has no member",
        "eosframework txn describe shop-big-0",
    ),
    Case(
        "hanging-transactions",
        E,
        lambda: snapshot(open_transactions=Seen((open_in("orders", Health.UNKNOWN),))),
        "no coordinator knows it",
        "eosframework txn abort --topic orders --partition 0 --producer-id 9",
    ),
    Case(
        "hanging-offsets",
        E,
        lambda: snapshot(open_offsets=Seen((open_in("__consumer_offsets", Health.OVERDUE),))),
        "its timeout is over",
        "eosframework txn abort other-late-0",
    ),
    Case(
        "held-back",
        N,
        lambda: snapshot(open_transactions=Seen((open_in("orders", Health.HEALTHY),))),
        "last stable offset 12, end 20: other-late-0",
        "txn describe other-late-0",
    ),
    Case(
        "held-back",
        W,
        lambda: snapshot(open_transactions=Seen((open_in("orders", Health.HEALTHY, 50),))),
        "open for 50.0 s",
        "txn describe other-late-0",
    ),
    Case(
        "topic-and-group-acls",
        E,
        lambda: with_topic("large", replace(topic(), allowed=frozenset({"Describe"}))),
        "Write is not allowed",
        "--operation Write --topic large",
    ),
    Case(
        "topic-and-group-acls",
        E,
        lambda: snapshot(group=Seen(GroupFacts((), frozenset({"Describe"})))),
        "Read is not allowed",
        "--operation Read --group shop",
    ),
    Case(
        "topic-and-group-acls",
        E,
        lambda: with_tables("payments", allowed=frozenset({"Describe"})),
        "Read is not allowed",
        "--operation Read --topic payments",
    ),
    Case(
        "topic-and-group-acls",
        E,
        lambda: replace(with_tables(), tables_group=Seen(GroupFacts((), frozenset({"Describe"})))),
        "Read is not allowed",
        "--operation Read --group shop.tables",
    ),
    Case(
        "registry-acls",
        E,
        lambda: with_topic(
            "shop.registry",
            replace(topic(1, cleanup_policy="compact"), allowed=frozenset({"Describe", "Read"})),
        ),
        "Write is not allowed",
        "--operation Write --topic shop.registry",
    ),
    Case(
        "registry-acls",
        W,
        lambda: replace(
            with_topic("shop.registry", TopicFacts(exists=False)),
            allowed_on_cluster=Seen(frozenset({"Describe"})),
        ),
        "not allowed Create",
        "eosframework apply APP",
    ),
    Case(
        "transactional-id-acls",
        E,
        lambda: snapshot(lacking={"shop-big-0": Seen("Write")}),
        "Write is not allowed",
        "--transactional-id shop- --resource-pattern-type prefixed",
    ),
    Case(
        "transactional-id-acls",
        E,
        lambda: replace(
            with_worker(ids="leased"),
            lacking={"TX 7": Seen("Describe")},
            leases=Seen({"TX 7": TransactionalId("shop", "big", 0, "TX 7")}),
        ),
        "Describe is not allowed",
        "--operation Write --operation Describe --transactional-id 'TX 7'",
    ),
    Case(
        "settings-acls",
        W,
        lambda: with_topic("large", replace(topic(), values=None)),
        "DescribeConfigs is not allowed",
        "--operation DescribeConfigs --topic large",
    ),
    Case(
        "not-checked",
        W,
        lambda: snapshot(clock=Seen(Unseen("the clock", "no quorum"))),
        "not seen, so not checked: clock",
        "no quorum",
    ),
]


def findings_of(found: Snapshot, check: str) -> list[Finding]:
    return [finding for finding in examine(found).findings if finding.check == check]


def test_nothing_is_found_in_a_healthy_cluster_but_what_cannot_be_seen() -> None:
    assert [finding.check for finding in examine(snapshot()).findings] == ["readers"]
    assert [finding.check for finding in examine(with_tables()).findings] == ["readers"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.severity}")
def test_a_check_finds_what_is_amiss_and_says_what_mends_it(case: Case) -> None:
    (finding,) = findings_of(case.cluster(), case.check)
    assert finding.severity is case.severity
    assert case.found in finding.found
    assert case.mend in finding.mend
    assert all((finding.about, finding.expected, finding.why))


def test_every_check_is_shown_to_find_something() -> None:
    assert {check.id for check in CHECKS} == {case.check for case in CASES}
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_a_leased_id_is_the_applications_own_whatever_its_form() -> None:
    lease = TransactionalId("shop", "big", 0, "shop-Other")
    own = Listed("shop-Other", State.EMPTY, 7, 1, lease)
    assert not findings_of(snapshot(ids=Seen((own,))), "foreign-ids")


def test_only_an_error_makes_an_application_unhealthy() -> None:
    for case in CASES:
        report = examine(case.cluster())
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
        assert report.healthy == (not errors)
        assert list(report.findings) == sorted(
            report.findings, key=lambda finding: list(Severity).index(finding.severity)
        )


def test_brokers_of_the_same_value_are_one_finding() -> None:
    (finding,) = findings_of(with_brokers(offsets_retention_minutes="60"), "offsets-retention")
    assert finding.about == "broker 1, broker 2, broker 3"


def test_brokers_that_do_not_tell_whether_they_verify_are_an_error_unless_assumed() -> None:
    unseen = Seen(Unseen("settings of the brokers", "grant DescribeConfigs"))
    (finding,) = findings_of(snapshot(brokers=unseen), "transaction-verification")
    assert finding.severity is Severity.ERROR
    assumed = snapshot(
        Settings(kafka=KafkaSettings(assume_transaction_verification=True)), brokers=unseen
    )
    (finding,) = findings_of(assumed, "transaction-verification")
    assert finding.severity is Severity.WARNING
    (not_checked,) = findings_of(assumed, "not-checked")
    assert "offsets-retention" in not_checked.found


def test_at_least_once_needs_neither_verification_nor_transactional_ids() -> None:
    found = replace(
        with_worker(guarantee="at_least_once"),
        brokers=with_brokers(**{VERIFY: "false"}).brokers,
        lacking={"shop-big-0": Seen("Write")},
    )
    assert examine(found).healthy


def test_a_topic_that_may_not_be_described_is_a_finding() -> None:
    hidden = with_topic("large", Unseen("topic large", "grant Describe on topic 'large'"))
    (finding,) = findings_of(hidden, "not-checked")
    assert (finding.about, finding.mend) == ("topic large", "grant Describe on topic 'large'")


def test_what_was_found_before_a_part_that_was_not_seen_is_kept() -> None:
    found = snapshot(
        lacking={
            "shop-a-0": Seen("Write"),
            "shop-b-0": Seen(Unseen("permissions on shop-b-0", "no answer")),
        }
    )
    assert len(findings_of(found, "transactional-id-acls")) == 1
    assert len(findings_of(found, "not-checked")) == 1


def test_the_page_of_the_checks_is_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "howto" / "doctor.md"
    assert page.read_text(encoding="utf-8") == markdown()
