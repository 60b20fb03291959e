"""Brokers take a partition without a leader for deleted, and complete a transaction without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.inspect.coordinators import describe_transaction
from eosframework.kafka.inspect.ending import WriteMarker, perform, plan_by_producer
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.hanging import Health, find_open, remedy
from eosframework.kafka.inspect.transaction_trace import trace
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from tests.support.applications.pipeline import read_committed, wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.three_brokers import PATIENCE_SECONDS, ThreeBrokers


@pytest.mark.exhaustive
@pytest.mark.parametrize("commit", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_a_partition_without_a_leader_gets_the_outcome_of_its_transaction_later(
    brokers: ThreeBrokers, unique_name: Callable[[str], str], commit: bool
) -> None:
    alone, other, name = unique_name("alone"), unique_name("other"), unique_name("id")
    servers = brokers.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    made = Producer({"bootstrap.servers": servers, "transactional.id": name})
    made.init_transactions(PATIENCE_SECONDS)
    kept = {brokers.transaction_coordinator(name), brokers.controller()}
    victim = next(node for node in brokers.cluster.nodes if node.id not in kept)
    topics = [NewTopic(alone, 1, replica_assignment=[[victim.id]]), NewTopic(other, 1, 3)]
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_SECONDS)
    try:
        made.begin_transaction()
        for topic in (alone, other):
            made.produce(topic, b"record", partition=0)
        assert made.flush(PATIENCE_SECONDS) == 0
        victim.stop()
        wait_until(lambda: brokers.leader(alone, 0) < 0, "a partition without a leader")
        (made.commit_transaction if commit else made.abort_transaction)(PATIENCE_SECONDS)
        victim.start()
        wait_until(lambda: brokers.leader(alone, 0) == victim.id, "its leader", PATIENCE_SECONDS)

        settings = KafkaSettings(bootstrap_servers=servers)
        with Wire(settings) as wire:
            completed = TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT
            assert describe_transaction(wire, name).state is completed
            (transaction,) = trace(wire, name, 1).transactions
            assert transaction.missing_markers == (TopicPartition(alone, 0),), (
                "no marker is missing"
            )
            (entry,) = find_open(wire, [alone]).hanging
            assert entry.health is Health.UNKNOWN
            right = "commit" if commit else "abort"
            assert remedy(entry).startswith(f"eosframework txn {right} --topic {alone} ")
            plan = plan_by_producer(wire, entry.partition, entry.producer.producer_id)
            assert isinstance(plan, WriteMarker)
            perform(wire, settings, plan)
        for topic in (alone, other):
            values = [message.value() for message in read_committed(servers, topic)]
            assert values == ([b"record"] if commit else []), topic
    finally:
        victim.start()
        ClusterAdmin(KafkaSettings(bootstrap_servers=servers)).delete_topics([alone, other])
