import pytest
from confluent_kafka import Producer

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.properties import client_properties, new_client

SETTINGS = KafkaSettings(
    bootstrap_servers="broker:1",
    properties={"linger.ms": 7, "fetch.wait.max.ms": 9, "sasl.username": "me"},
)


def test_each_client_gets_its_own_properties_and_the_common_ones():
    mine = {"linger.ms", "fetch.wait.max.ms", "sasl.username"}
    assert mine & set(client_properties(SETTINGS, "producer")) == {"linger.ms", "sasl.username"}
    assert mine & set(client_properties(SETTINGS, "consumer")) == mine - {"linger.ms"}
    assert mine & set(client_properties(SETTINGS, "admin")) == {"sasl.username"}


def test_client_ids_tell_workers_from_strangers():
    assert client_properties(SETTINGS, "consumer")["client.id"].startswith("eosframework")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("linger.mss", 5, "did you mean linger.ms"),
        ("retry.backoff.ms", "soon", "retry.backoff.ms='soon'"),
    ],
)
def test_a_property_that_cannot_be_used_is_named(name, value, expected):
    with pytest.raises(ConfigurationError, match=expected):
        new_client(Producer, {"bootstrap.servers": "127.0.0.1:1", name: value})
