"""A trace tells the offsets of a transaction whatever else lies in the log of the offsets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.kafka.inspect import transaction_trace as tracing
from eosframework.kafka.inspect.wire import Wire
from tests.conftest import KafkaService
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics


def test_the_offsets_of_an_id_s_first_transaction_are_found_behind_older_commits(
    kafka: KafkaService,
    topic_name: str,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One broker has one clock; without the allowance, what is older by moments is not searched.
    monkeypatch.setattr(tracing, "SKEW_MILLISECONDS", 0)
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers}
    admin = AdminClient(servers)
    create_topics(admin, [NewTopic(topic_name, 1, 1)])
    consumer = Consumer({**servers, "group.id": unique_name("group")})
    consumer.commit(offsets=[TopicPartition(topic_name, 0, 3)], asynchronous=False)

    transactional_id = unique_name("first")
    producer = Producer({**servers, "transactional.id": transactional_id})
    producer.init_transactions(60)
    for position, end in ((5, producer.commit_transaction), (9, producer.abort_transaction)):
        producer.begin_transaction()
        moved = [TopicPartition(topic_name, 0, position)]
        producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), 60)
        end(60)
    consumer.close()

    with Wire(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)) as wire:
        traced = tracing.trace(wire, transactional_id, last=2)
    told = [[position.offset for position in entry.offsets] for entry in traced.transactions]
    assert told == [[5], [9]]
