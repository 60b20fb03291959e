"""A record whose headers are no UTF-8 is read without them; it ends nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from eosframework.kafka.consumer.read_committed import HEADER_UNREADABLE, ReadCommittedConsumer
from tests.conftest import KafkaService
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics


class Bytes(str):
    """A header's name that is sent as these bytes."""

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"\xff\xfe"


@pytest.fixture
def topic(kafka: KafkaService, unique_name: Callable[[str], str]) -> str:
    name = unique_name("headers")
    create_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), [NewTopic(name, 1)])
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for number, headers in enumerate(([], [(Bytes("x"), b"1")], [("fine", b"2")])):
        producer.send(name, b"%d" % number, headers=headers).get(60)
    producer.close()
    return name


def read(consumer: Consumer, topic: str) -> list[Any]:
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < 3:
        found += consumer.consume(10, 1.0)
    consumer.close()
    return found


def test_headers_that_cannot_be_read_are_told_and_the_others_kept(
    kafka: KafkaService, topic: str
) -> None:
    consumer = ReadCommittedConsumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic}
    )
    messages = read(consumer, topic)
    assert [message.value() for message in messages] == [b"0", b"1", b"2"]
    for _ in range(2):  # confluent_kafka ends the process at the second look
        headers = [message.headers() for message in messages]
        assert headers == [None, [(HEADER_UNREADABLE, b"")], [("fine", b"2")]]


def test_a_plain_consumer_cannot_read_them(kafka: KafkaService, topic: str) -> None:
    """What the others are protected from is there."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic}.plain"}
    )
    messages = read(consumer, topic)
    with pytest.raises(SystemError):
        messages[1].headers()
