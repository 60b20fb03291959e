"""What checks of the brokers' settings find."""

from __future__ import annotations

from eosframework.kafka.inspect.probes import MetadataLevels
from eosframework.operations.doctor.findings import Seen
from tests.unit.operations.doctor.case import Case, E, N, W
from tests.unit.operations.doctor.made_up import VERIFY, snapshot, with_brokers

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
        "transaction-verification",
        E,
        lambda: with_brokers(inter_broker_protocol_version="3.9-IV0"),
        "inter.broker.protocol.version=3.9-IV0",
        "upgrade",
    ),
    Case(
        "transaction-verification",
        E,
        lambda: with_brokers(group_coordinator_rebalance_protocols=None),
        "cannot be read",
        "assume_transaction_verification",
    ),
    Case(
        "broker-versions",
        N,
        lambda: snapshot(levels=Seen(MetadataLevels({1: 29, 2: 30}, 29))),
        "broker 1 29, broker 2 30",
        "upgrade",
    ),
    Case(
        "broker-versions",
        N,
        lambda: snapshot(levels=Seen(MetadataLevels({1: 30, 2: 30}, 25))),
        "metadata.version 25 in use; every broker supports 30",
        "kafka-features.sh upgrade",
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
]
