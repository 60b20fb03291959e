"""confluent_kafka's client of a schema registry and its serializers, configured.

The functions import these packages themselves: only topologies with schemas in a registry need
them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from eosframework.config import RegistrySettings
from eosframework.errors import ConfigurationError
from eosframework.kafka.schema_registry.registry_answers import Answer, answer_of
from eosframework.serialization.schemas import Codec, Format

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

NOT_REGISTERED = frozenset({40400, 40401, 40402, 40403})
"""Codes for an unknown subject, version or schema.
https://docs.confluent.io/platform/current/schema-registry/develop/api.html#errors"""

_RETRIES = 1
_RETRY_MS = 200


def open_client(settings: RegistrySettings) -> SchemaRegistryClient:
    """Return a client of the configured registry, without a request to it.

    Raises:
        ConfigurationError: there are no settings for it, or the packages are missing.
    """
    if settings.url is None:
        raise ConfigurationError(
            "the topology has serdes with schemas in a registry, and none is configured; set "
            "schema_registry.url, for example http://127.0.0.1:8081"
        )
    conf: dict[str, Any] = {
        "url": settings.url,
        "timeout": settings.request_timeout_seconds,
        "max.retries": _RETRIES,
        "retries.wait.ms": _RETRY_MS,
        "retries.max.wait.ms": _RETRY_MS,
    }
    files = {
        "ssl.ca.location": settings.ca_file,
        "ssl.certificate.location": settings.certificate_file,
        "ssl.key.location": settings.key_file,
    }
    conf |= {name: str(file) for name, file in files.items() if file is not None}
    if settings.key_password is not None:
        conf["ssl.key.password"] = settings.key_password.get_secret_value()
    if settings.password is not None:
        conf["basic.auth.user.info"] = f"{settings.user}:{settings.password.get_secret_value()}"
    try:
        return _library().SchemaRegistryClient(conf)
    except OSError as error:
        raise ConfigurationError(
            f"the files of schema_registry.ca_file, certificate_file and key_file cannot be used: "
            f"{error}; expected PEM files that this process can read"
        ) from error


def local_client() -> SchemaRegistryClient:
    """Return a client that keeps schemas in this process."""
    return _library().SchemaRegistryClient.new_client({"url": "mock://eosframework"})


def avro() -> Any:
    """Return the module of the Avro serializers."""
    from confluent_kafka.schema_registry import avro

    return avro


def json_schema() -> Any:
    """Return the module of the JSON Schema serializers."""
    from confluent_kafka.schema_registry import json_schema

    return json_schema


def protobuf() -> Any:
    """Return the module of the Protobuf serializers."""
    from confluent_kafka.schema_registry import protobuf

    return protobuf


def registry_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of the client about the registry, as opposed to about a value."""
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    # The client uses httpx2 or, if that is not installed, httpx.
    installed = [name for name in ("httpx2", "httpx") if find_spec(name) is not None]
    transport: list[type[Exception]] = [import_module(name).TransportError for name in installed]
    return (SchemaRegistryError, OAuthTokenError, *transport)


def answered(error: Exception) -> Answer:
    """Return the row of the table for an error of `registry_errors`."""
    status: object = getattr(error, "http_status_code", getattr(error, "status_code", None))
    return answer_of(getattr(error, "error_code", None), status)


def reason(error: Exception) -> str:
    """Return an error in one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def subject_conf(subject: str | None) -> dict[str, Any]:
    """Return a strategy with a fixed subject; None: schemas are found by their id alone."""

    def name(_context: Any, _record: Any) -> str | None:
        return subject

    return {"subject.name.strategy": name}


def context_of(codec: Codec) -> Any:
    """Return the serialization context of a codec's records."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    field = MessageField.KEY if codec.is_key else MessageField.VALUE
    return SerializationContext(codec.topic or "", field)


def schema_of(codec: Codec) -> Schema:
    """Return the client's schema object of an Avro or JSON codec."""
    from confluent_kafka.schema_registry import Schema

    return Schema(codec.schema, "AVRO" if codec.declared.format is Format.AVRO else "JSON")


def _library() -> Any:
    try:
        from confluent_kafka import schema_registry
    except ImportError as error:
        raise ConfigurationError(
            f"serdes with schemas in a registry need more packages ({error.name} is missing); "
            f"run: pip install 'eosframework[registry]'"
        ) from error
    return schema_registry
