"""librdkafka clients from settings: properties by role, and explained errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from eosframework.config import KafkaSettings
from eosframework.config.secrets import is_secret
from eosframework.errors import ConfigurationError
from eosframework.kafka.client.token_function import TokenFunction, token_function
from eosframework.process.client_log import CLIENT_LOGGER
from eosframework.serialization.yaml_text import read_table

Client = TypeVar("Client")

CLIENT_ID = "eosframework"
"""Prefix of every client id; it distinguishes our group members from others."""

_REPORTED_AS = {
    "linger.ms": "queue.buffering.max.ms",
    "delivery.timeout.ms": "message.timeout.ms",
    "compression.type": "compression.codec",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "retries": "message.send.max.retries",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
}
"""Aliases under which librdkafka reports an unusable value."""

logging.getLogger(CLIENT_LOGGER).addHandler(logging.NullHandler())


class Role(StrEnum):
    """Kinds of clients; an admin client takes only the properties that the others share."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


def client_properties(settings: KafkaSettings, role: Role | str) -> dict[str, Any]:
    """Return the properties that every client of `role` starts from.

    Properties of other roles are left out, because librdkafka would warn about each. Its log
    records go to the logger named `CLIENT_LOGGER` when the client is polled.

    Args:
        settings: the cluster, and the user's own properties.
        role: producer, consumer or admin.
    """
    role = Role(role)
    names = _property_names()
    others = {
        name
        for other in (Role.PRODUCER, Role.CONSUMER)
        if other is not role
        for name in names[other.value]
    }
    return {
        "client.id": f"{CLIENT_ID}-{role}",
        "socket.timeout.ms": max(round(settings.request_timeout_seconds * 1000), 10),
        **{name: value for name, value in settings.properties.items() if name not in others},
        **_tokens(settings),
        "bootstrap.servers": settings.bootstrap_servers,
        "logger": logging.getLogger(CLIENT_LOGGER),
    }


def new_client(make: Callable[[dict[str, Any]], Client], properties: Mapping[str, Any]) -> Client:
    """Return `make(properties)`, with an explained error if a property cannot be used.

    Raises:
        ConfigurationError: names the property, and the closest one that exists, or the function
            that returned no token.
    """
    if isinstance(tokens := properties.get("oauth_cb"), TokenFunction):
        tokens(properties.get("sasl.oauthbearer.config"))  # the client would lose its error
    try:
        return make(dict(properties))
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() != KafkaError._INVALID_ARG:  # noqa: SLF001
            raise
        raise ConfigurationError(_explained(reason.str() or "", properties)) from error


def _tokens(settings: KafkaSettings) -> dict[str, Any]:
    function = token_function(settings)
    return {} if function is None else {"oauth_cb": function}


def _explained(reason: str, properties: Mapping[str, Any]) -> str:
    reason = reason.strip()
    if missing := re.search(r'No such configuration property: "([^"]+)"', reason):
        name = missing[1]
        existing = sorted({known for names in _property_names().values() for known in names})
        close = get_close_matches(name, existing, n=3, cutoff=0.7)
        hint = f"did you mean {' or '.join(close)}?" if close else "remove it"
        return f"kafka.properties: librdkafka has no property {name!r}; {hint}"
    named = re.search(r'property "([^"]+)"', reason)
    given = [name for name in properties if named and _REPORTED_AS.get(name, name) == named[1]]
    if given and is_secret(given[0]):
        return (
            f"kafka.properties: {given[0]} cannot be used: librdkafka refuses its value; correct it"
        )
    if given:
        value = properties[given[0]]
        return f"kafka.properties: {given[0]}={value!r} cannot be used: {reason}; correct it"
    for name, value in properties.items():
        if is_secret(name) and value:
            reason = reason.replace(str(value), "…")
    return f"kafka.properties cannot be used: {reason}; correct or remove it"


@cache
def _property_names() -> dict[str, list[str]]:
    return read_table("eosframework.kafka.client", "properties.yaml", dict[str, list[str]])
