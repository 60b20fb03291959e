"""What checks of replicas find."""

from __future__ import annotations

from dataclasses import replace

from eosframework.kafka.admin.metadata import Placement, TopicDescription
from eosframework.operations.doctor.findings import Seen
from tests.unit.operations.doctor.case import Case, E, W
from tests.unit.operations.doctor.made_up import (
    FEW,
    TOPIC_VALUES,
    on_one_broker,
    topic,
    with_brokers,
    with_topic,
)

CASES = [
    Case("one-broker", W, lambda: on_one_broker("orders"), "broker 1 alone", "run three brokers"),
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
            topics={"__transaction_state": Seen(TopicDescription(exists=False))},
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
]
