"""A schema registry, and codecs bound to it.

confluent_kafka's serializers do the work. This module decides the subject of a schema and the
consequence of a failure: a registry that does not answer says nothing about a record, so the record
is neither skipped nor a dead letter; it waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, TypeVar

from eosframework.config import RegistrySettings, SubjectNames
from eosframework.errors import (
    ConfigurationError,
    SchemaRegistryUnavailable,
    SchemasRefused,
    SchemasUnusable,
)
from eosframework.kafka.schema_registry.avro_reader import AvroReader
from eosframework.kafka.schema_registry.avro_values import (
    has_record_choice,
    value_converter,
    with_classes,
)
from eosframework.kafka.schema_registry.child_decoder import ChildDecoder
from eosframework.kafka.schema_registry.foreign_schemas import ForeignSchemas, schema_name
from eosframework.kafka.schema_registry.registry_answers import Action, Use
from eosframework.kafka.schema_registry.registry_client import (
    NOT_REGISTERED,
    answered,
    avro,
    context_of,
    json_schema,
    local_client,
    open_client,
    protobuf,
    reason,
    registry_errors,
    schema_of,
    subject_conf,
)
from eosframework.serialization import strict_json
from eosframework.serialization.model_checks import require_all_fields
from eosframework.serialization.schemas import Codec, Format
from eosframework.serialization.serdes import model_serde

_T = TypeVar("_T")

_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Subject:
    """A schema that the application writes with, under its subject in the registry."""

    name: str
    codec: Codec

    @property
    def label(self) -> str:
        """Description for messages."""
        return f"schema of {self.codec.declared} for subject {self.name!r}"


def open_schemas(
    codecs: Sequence[Codec],
    settings: RegistrySettings,
    *,
    checked: bool = True,
    patience_seconds: float = 0.0,
) -> None:
    """Bind the codecs of an application to the registry, if it has any.

    Args:
        codecs: of its graph.
        settings: where the registry is.
        checked: also make sure that it answers and has the schemas for writing.
        patience_seconds: see `SchemaRegistry`.

    Raises:
        ConfigurationError: there are no settings for a registry, or packages are missing.
        SchemasUnusable: it cannot be reached, lacks a schema, or rejects one.
    """
    if not codecs:
        return
    registry = SchemaRegistry(settings, patience_seconds=patience_seconds)
    registry.bind(codecs)
    if checked:
        registry.require(codecs)


class SchemaRegistry:
    """Registers and looks up schemas, and encodes and decodes for codecs.

    Args:
        settings: where it is.
        patience_seconds: the time for which a record waits here for an unavailable registry before
            the call fails.
        local: keep schemas in this process, for tests of topologies.

    Raises:
        ConfigurationError: there are no settings for it, or the packages are missing.
    """

    def __init__(
        self, settings: RegistrySettings, *, patience_seconds: float = 0.0, local: bool = False
    ) -> None:
        self._settings = settings
        self._patience_seconds = patience_seconds
        self._is_local = local
        self._elsewhere = _Elsewhere(settings, patience_seconds)
        self._client = local_client() if local else open_client(settings)
        self._schemas = ForeignSchemas(self._client)
        self._child = ChildDecoder()
        self._registers = settings.auto_register or local
        self.place = settings.url or "this process"

    def bind(self, codecs: Iterable[Codec]) -> None:
        """Bind codecs to this registry, without a request to it."""
        for codec in codecs:
            encode = self._encoder(codec) if codec.declared.writes else _refuse_to_write
            codec.bind(encode, self._decoder(codec), None if self._is_local else self._elsewhere)

    def subjects(self, codecs: Iterable[Codec]) -> list[Subject]:
        """Return the schemas that the application writes with, without duplicates."""
        found: dict[tuple[str, str], Subject] = {}
        for codec in codecs:
            if codec.written:
                subject = Subject(self.subject_of(codec), codec)
                found.setdefault((subject.name, str(codec.declared)), subject)
        return list(found.values())

    def subject_of(self, codec: Codec) -> str:
        """Return the name under which a codec's schema is registered.

        Raises:
            ConfigurationError: the settings give it none.
        """
        if codec.declared.subject is not None:
            return codec.declared.subject
        names, record = self._settings.subject_names, codec.record
        if names is SubjectNames.TOPIC:
            return f"{codec.topic}-{'key' if codec.is_key else 'value'}"
        if record is None:
            raise ConfigurationError(
                f"schema_registry.subject_names={names} goes by names of records, and the schema "
                f"of {codec.declared} has none; name the record, or give the serde a subject"
            )
        return record if names is SubjectNames.RECORD else f"{codec.topic}-{record}"

    def require(self, codecs: Sequence[Codec]) -> None:
        """Make sure that workers can read and write with these codecs.

        Raises:
            SchemasUnusable: the registry cannot be reached, lacks a schema, or rejects one.
        """
        self._request("what it can do", self._client.get_schema_types)
        for subject in self.subjects(codecs):
            if self._settings.use_latest_version:
                known = self._known(subject, lambda s=subject: self._latest(s))
            elif self._registers:
                self.register(subject)
                continue
            else:
                known = self._known(subject, lambda s=subject: self._lookup(s))
            if not known:
                raise SchemasUnusable(
                    f"the registry at {self.place} has no {subject.label}; run `eosframework "
                    f"apply`, or set schema_registry.auto_register=true"
                )

    def is_registered(self, subject: Subject) -> bool:
        """Return whether the registry has a schema under its subject.

        Raises:
            SchemasUnusable: the registry cannot be reached, or gives no usable answer.
        """
        return self._known(subject, lambda: self._lookup(subject))

    def fits(self, subject: Subject) -> bool:
        """Return whether a schema is compatible with those of its subject.

        A Protobuf schema is checked only when it is registered: not every registry reads the
        descriptors that are available here.

        Raises:
            SchemasUnusable: the registry cannot be reached, or gives no usable answer.
        """
        if subject.codec.declared.format is Format.PROTOBUF:
            return True
        if not self._known(subject, lambda: self._latest(subject)):
            return True
        schema = schema_of(subject.codec)
        return self._request(
            f"whether the {subject.label} fits",
            lambda: self._client.test_compatibility(subject.name, schema),
        )

    def register(self, subject: Subject) -> None:
        """Register a schema; a registered one is left as it is.

        Raises:
            SchemasUnusable: the registry cannot be reached, or rejects the schema.
        """
        if subject.codec.declared.format is Format.PROTOBUF:
            self._request(f"to take the {subject.label}", lambda: self._write_empty(subject, True))
            return
        schema = schema_of(subject.codec)
        self._request(
            f"to take the {subject.label}",
            lambda: self._client.register_schema(subject.name, schema),
        )

    def _lookup(self, subject: Subject) -> None:
        if subject.codec.declared.format is Format.PROTOBUF:
            self._write_empty(subject, False)
            return
        self._client.lookup_schema(subject.name, schema_of(subject.codec))

    def _latest(self, subject: Subject) -> None:
        self._client.get_latest_version(subject.name)

    def _write_empty(self, subject: Subject, registers: bool) -> None:
        """Encode an empty message, which looks up its schema and those of its imports."""
        codec: Any = subject.codec
        conf = {**subject_conf(subject.name), "auto.register.schemas": registers}
        protobuf().ProtobufSerializer(codec.model, self._client, conf)(
            codec.model(), context_of(codec)
        )

    def _known(self, subject: Subject, look: Callable[[], None]) -> bool:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        def found() -> bool:
            try:
                look()
            except SchemaRegistryError as error:
                if error.error_code in NOT_REGISTERED:
                    return False
                raise
            return True

        return self._request(f"for the {subject.label}", found)

    def _request(self, what: str, ask: Callable[[], _T]) -> _T:
        """Return an answer of the registry, for a command or at a start."""
        try:
            return ask()
        except registry_errors() as error:
            raise SchemasUnusable(
                f"the schema registry at {self.place} was asked {what} and gave "
                f"{reason(error)}; check schema_registry.url and what the registry says"
            ) from error

    # --- records ------------------------------------------------------------------------

    def _encoder(self, codec: Codec) -> Callable[[Any], bytes]:
        settings, context = self._settings, context_of(codec)
        conf = {
            **subject_conf(self.subject_of(codec)),
            "auto.register.schemas": self._registers and not settings.use_latest_version,
            "use.latest.version": settings.use_latest_version,
        }
        model: Any = codec.model
        if codec.declared.format is Format.PROTOBUF:
            write = protobuf().ProtobufSerializer(model, self._client, conf)
        elif codec.declared.format is Format.AVRO:
            to_value = _to_avro(codec.schema, model)
            write = avro().AvroSerializer(self._client, codec.schema, to_value, conf)
        else:
            to_map = None if model is None else _members_of(model)
            write = json_schema().JSONSerializer(
                codec.schema, self._client, to_map, conf, json_encode=_write_json
            )
        return self._patient(Use.WRITE, codec, lambda value: write(value, context))

    def _decoder(self, codec: Codec) -> Callable[[bytes], Any]:
        model: Any = codec.model
        context, conf = context_of(codec), subject_conf(None)
        if codec.declared.format is Format.PROTOBUF:
            read = protobuf().ProtobufDeserializer(model, conf, self._client)
        elif codec.declared.format is Format.AVRO:
            read = AvroReader(self._client, self._schemas, codec.schema, model, self._child)
        else:
            read = json_schema().JSONDeserializer(
                codec.schema, None, self._client, conf, json_decode=_read_json
            )
            read = read if model is None else _reader_of_json(read, model)
        return self._patient(Use.READ, codec, lambda data: read(data, context))

    def _patient(self, use: Use, codec: Codec, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `work`, with failures of the registry handled by the table of answers.

        Args:
            use: of the schema.
            codec: of the records.
            work: takes a value or its bytes.
        """
        errors = registry_errors()

        def done(given: Any) -> Any:
            deadline = None
            while True:
                try:
                    return work(given)
                except errors as error:
                    answer = answered(error)
                    if answer.actions[use] is Action.RECORD:
                        raise
                    if answer.actions[use] is Action.REFUSE:
                        raise SchemasRefused(
                            f"the schema registry at {self.place} is needed to {use} "
                            f"{codec.topic or codec.declared} and gave {reason(error)}: "
                            f"{answer.meaning}. No record is skipped or set aside for it. To fix "
                            f"it: {answer.fix}; then start again"
                        ) from error
                    now = time.monotonic()
                    deadline = now + self._patience_seconds if deadline is None else deadline
                    if now >= deadline:
                        raise SchemaRegistryUnavailable(
                            f"the schema registry at {self.place} is needed to {use} "
                            f"{codec.topic or codec.declared} and gave "
                            f"{reason(error)}; the record waits for it"
                        ) from error
                    time.sleep(_PAUSE_SECONDS)

        return done


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Binds codecs that arrive in another process, all to one client."""

    settings: RegistrySettings
    patience_seconds: float

    def __call__(self, codec: Codec) -> None:
        _opened(self).bind([codec])


@cache
def _opened(place: _Elsewhere) -> SchemaRegistry:
    return SchemaRegistry(place.settings, patience_seconds=place.patience_seconds)


def _to_avro(schema: str | None, model: Any) -> Callable[[Any, Any], Any]:
    assert schema is not None, "only codecs that write have an encoder"
    convert = value_converter(schema)
    if model is None:
        return lambda value, _: convert(value)
    has_choice = has_record_choice(json.loads(schema))

    def to_value(value: Any, _: Any) -> Any:
        if value.__class__ is not model:
            require_all_fields(model, value)
        members = value.model_dump(mode="python", by_alias=True)
        model.model_validate(members)  # A reader does the same.
        return convert(with_classes(value, members) if has_choice else members)

    return to_value


def _reader_of_json(read: Callable[[bytes, Any], Any], model: Any) -> Callable[[bytes, Any], Any]:
    """Return a reader that checks a value against its schema and makes a model of its text."""
    decode = model_serde(model).decode
    assert decode is not None, "models are decoded"

    def read_model(data: bytes, context: Any) -> Any:
        read(data, context)
        return decode(data[len(schema_name(data)) :])

    return read_model


def _members_of(model: Any) -> Callable[[Any, Any], Any]:
    """Return the function that makes of a model what its JSON has."""
    encode = model_serde(model).encode
    assert encode is not None, "models are encoded"
    return lambda value, _: strict_json.read(encode(value))


# Escaped, two surrogates would be read as one character.
_write_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


def _read_json(data: str | bytes) -> Any:
    return json.loads(data, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; expected a number or null")


def _refuse_to_write(_: Any) -> bytes:
    raise TypeError("the serde has no schema to write with; give it one")
