from contextlib import suppress

import pytest
from confluent_kafka import Consumer, Producer
from pydantic import ValidationError

from eosframework.config import FORBIDDEN_PROPERTIES, KafkaSettings
from eosframework.config.settings import FUNCTION_PROPERTIES
from eosframework.errors import ConfigurationError
from eosframework.kafka.client import properties
from eosframework.kafka.client.properties import client_properties, new_client

TAKEN_BY_THE_LIBRARY = ("default.topic.config", "oauth_cb", "on_commit", "on_delivery")
"""Names that confluent_kafka takes and librdkafka does not know."""

SETTINGS = KafkaSettings(
    bootstrap_servers="broker:1",
    properties={"linger.ms": 7, "fetch.wait.max.ms": 9, "sasl.username": "me"},
)


def test_each_client_gets_its_own_properties_and_the_common_ones():
    mine = {"linger.ms", "fetch.wait.max.ms", "sasl.username"}
    assert mine & set(client_properties(SETTINGS, "producer")) == {"linger.ms", "sasl.username"}
    assert mine & set(client_properties(SETTINGS, "consumer")) == mine - {"linger.ms"}
    assert mine & set(client_properties(SETTINGS, "admin")) == {"sasl.username"}


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


@pytest.mark.parametrize("value", ["text", 1, True])
def test_every_property_that_configuration_can_give_is_used_or_refused_in_one_message(value):
    """Some take a Python object, and the library ends in a TypeError over text."""
    named = properties._property_names().values()
    for name in {*TAKEN_BY_THE_LIBRARY, *(name for names in named for name in names)}:
        given = {name: value}
        if name in {*FORBIDDEN_PROPERTIES, *FUNCTION_PROPERTIES}:
            with pytest.raises(ValidationError, match=f"property {name}"):
                KafkaSettings(properties=given)
            continue
        settings = KafkaSettings(bootstrap_servers="127.0.0.1:1", properties=given)
        with suppress(ConfigurationError):
            new_client(Producer, client_properties(settings, "producer"))
        with suppress(ConfigurationError):
            new_client(
                Consumer, {**client_properties(settings, "consumer"), "group.id": "g"}
            ).close()


def test_a_function_for_tokens_is_refused_with_the_settings_that_get_them():
    with pytest.raises(ValidationError, match=r"oauth_cb .* sasl.oauthbearer.method=oidc"):
        KafkaSettings(properties={"oauth_cb": "module:function"})
