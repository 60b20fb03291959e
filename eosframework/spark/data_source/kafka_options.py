"""The settings of the cluster from options as Spark's own Kafka source spells them.

`kafka.NAME` has the name of a property of Kafka's Java client. Names that librdkafka shares, and
its own ones, are taken as they are; credentials and PEM certificates are translated. The other
direction is `session/java_properties`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import ValidationError

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError

PREFIX = "kafka."

SERVERS = f"{PREFIX}bootstrap.servers"

_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

_STORES = {
    "ssl.truststore": ("PEM", "ssl.ca.location"),
    "ssl.keystore": ("PKCS12", "ssl.keystore.location"),
}
"""Stores of Java: the only type that librdkafka reads, and its property for the place."""

_JAAS = re.compile(r"\.(?:Plain|Scram)LoginModule\s+required\b(.*);?\s*$", re.DOTALL)
_JAAS_VALUE = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def kafka_settings(base: KafkaSettings, options: Mapping[str, str]) -> KafkaSettings:
    """Return the settings of the cluster with those of the options.

    Args:
        base: what the options do not name.
        options: of the source, with lower-case names.

    Raises:
        ConfigurationError: a property cannot be used; names the option.
    """
    named = {n: v for n, v in options.items() if n.startswith(PREFIX)}
    servers = named.pop(SERVERS, None)
    given = {n.removeprefix(PREFIX): v for n, v in named.items()}
    changes: dict[str, object] = {} if servers is None else {"bootstrap_servers": servers}
    if given:
        changes["properties"] = {**base.properties, **_properties(given)}
    try:
        return KafkaSettings.model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise ConfigurationError(f"options {PREFIX}…: {reason}") from None


def _properties(given: dict[str, str]) -> dict[str, str]:
    """Return librdkafka's properties for those of Java."""
    found: dict[str, str] = {}
    if (jaas := given.pop("sasl.jaas.config", None)) is not None:
        found |= _credentials(jaas)
    for family, (readable, location) in _STORES.items():
        kind, place = given.pop(f"{family}.type", "JKS"), given.pop(f"{family}.location", None)
        if place is not None and kind.upper() != readable:
            raise ConfigurationError(
                f"option {PREFIX}{family}.location={place} has the type {kind}, which librdkafka "
                f"does not read; convert it, and set {PREFIX}{family}.type={readable}"
            )
        if place is not None:
            found[location] = place
    if given.get("ssl.endpoint.identification.algorithm") == "":
        given["ssl.endpoint.identification.algorithm"] = "none"
    return found | {_RENAMED.get(name, name): value for name, value in given.items()}


def _credentials(jaas: str) -> dict[str, str]:
    """Return user and password of a JAAS configuration."""
    module = _JAAS.search(jaas)
    values = {} if module is None else dict(_JAAS_VALUE.findall(module[1]))
    if not {"username", "password"} <= values.keys():
        raise ConfigurationError(
            f"option {PREFIX}sasl.jaas.config has no PlainLoginModule or ScramLoginModule with "
            f"username and password; for other mechanisms set librdkafka's properties, such as "
            f"{PREFIX}sasl.oauthbearer.method, or the settings of the application"
        )
    plain = {name: re.sub(r"\\(.)", r"\1", value) for name, value in values.items()}
    return {"sasl.username": plain["username"], "sasl.password": plain["password"]}
