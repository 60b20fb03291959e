"""From the settings to a librdkafka client: its properties by role, and errors that help."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import yaml
from confluent_kafka import KafkaError, KafkaException

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.logs import CLIENT_LOGGER

Client = TypeVar("Client")

CLIENT_ID = "eosframework"
"""What every client id begins with; it tells our group members from other people's."""

logging.getLogger(CLIENT_LOGGER).addHandler(logging.NullHandler())


class Role(StrEnum):
    """What a client is for. An admin client takes only what the others have in common."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


def client_properties(settings: KafkaSettings, role: Role | str) -> dict[str, Any]:
    """Return what every client of `role` starts from; the caller adds its own on top.

    Properties of other roles are left out, because librdkafka would warn of each. Its log
    records go to the logger named `CLIENT_LOGGER`, whenever the client is polled.

    Args:
        settings: the cluster, and the properties the user passes through.
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
        "bootstrap.servers": settings.bootstrap_servers,
        "logger": logging.getLogger(CLIENT_LOGGER),
    }


def new_client(make: Callable[[dict[str, Any]], Client], properties: Mapping[str, Any]) -> Client:
    """Return `make(properties)`, with a message that helps if a property cannot be used.

    Raises:
        ConfigurationError: names the property, and the closest one that exists.
    """
    try:
        return make(dict(properties))
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() != KafkaError._INVALID_ARG:  # noqa: SLF001
            raise
        raise ConfigurationError(_explained(reason.str() or "", properties)) from error


def _explained(reason: str, properties: Mapping[str, Any]) -> str:
    if missing := re.search(r'No such configuration property: "([^"]+)"', reason):
        name = missing[1]
        existing = sorted({known for names in _property_names().values() for known in names})
        close = get_close_matches(name, existing, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "remove it"
        return f"kafka.properties: librdkafka has no property {name!r}; {hint}"
    named = re.search(r'property "([^"]+)"', reason)
    if named and named[1] in properties:
        return f"kafka.properties: {named[1]}={properties[named[1]]!r} cannot be used: {reason}"
    return f"kafka.properties cannot be used: {reason}"


@cache
def _property_names() -> dict[str, list[str]]:
    text = files("eosframework.kafka").joinpath("properties.yaml").read_text(encoding="utf-8")
    names: dict[str, list[str]] = yaml.safe_load(text)
    return names
