"""librdkafka properties: what is set, what the user may change, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework.errors import ConfigurationError
from eosframework.kafka.client.defaults import consumer_properties, producer_properties
from eosframework.kafka.consumer.read_committed import ReadCommittedConsumer
from eosframework.kafka.producer.transactional import TransactionalProducer

MINE = {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "app:part:0"}


def test_the_users_properties_win_over_the_defaults() -> None:
    properties = producer_properties({**MINE, "linger.ms": 50, "compression.codec": "zstd"})
    assert properties["linger.ms"] == 50
    assert properties["compression.type"] == "zstd"
    assert properties["retry.backoff.ms"] == 10


def test_messages_expire_before_their_transaction() -> None:
    properties = producer_properties({**MINE, "transaction.timeout.ms": 10_000})
    assert properties["message.timeout.ms"] == 8_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.idempotence", False),
        ("acks", 1),
        ("request.required.acks", 0),
        ("socket.max.fails", 0),
        ("metadata.recovery.strategy", "rebootstrap"),
        ("test.mock.num.brokers", 1),
    ],
)
def test_a_producer_property_that_breaks_the_guarantee_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="would break the guarantee"):
        TransactionalProducer({**MINE, name: value})


def test_a_producer_without_a_transactional_id_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"transactional\.id"):
        TransactionalProducer({"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize(
    ("name", "value"), [("isolation.level", "read_uncommitted"), ("enable.auto.commit", True)]
)
def test_a_consumer_property_that_breaks_the_guarantee_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="would break the guarantee"):
        ReadCommittedConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", name: value})


def test_a_consumer_reads_committed_without_being_told() -> None:
    assert consumer_properties({})["isolation.level"] == "read_committed"
