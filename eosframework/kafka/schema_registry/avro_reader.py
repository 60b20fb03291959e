"""Decoding of Avro values of any writer, within bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from eosframework.kafka.schema_registry.avro_values import (
    classes_of,
    has_record_choice,
    with_names,
)
from eosframework.kafka.schema_registry.child_decoder import ChildDecoder
from eosframework.kafka.schema_registry.foreign_schemas import KNOWN, ForeignSchemas, schema_name
from eosframework.kafka.schema_registry.registry_client import avro, subject_conf
from eosframework.serialization.avro_cost import Cost, cost_of


@dataclass(frozen=True, slots=True)
class _Writer:
    """The known facts of a writer's schema; `has_choice`: some union has several records."""

    cost: Cost
    has_choice: bool


class AvroReader:
    """Decodes a value here if its schema and size bound what that costs, else in a child process.

    Args:
        client: of the registry.
        schemas: of the same client.
        own: text of the schema to read values with; None: that of the writer.
        model: class of the values; None: they are maps.
        child: decodes what this process does not.
    """

    def __init__(
        self,
        client: Any,
        schemas: ForeignSchemas,
        own: str | None,
        model: type[BaseModel] | None,
        child: ChildDecoder,
    ) -> None:
        self._client = client
        self._schemas = schemas
        self._own = own
        self._child = child
        parsed = None if own is None else json.loads(own)
        self._defaults = 0 if own is None else cost_of(parsed).values
        self._own_has_choice = None if own is None else has_record_choice(parsed)
        self._known: dict[bytes, _Writer] = {}
        self._made = {False: _maker(model), True: _maker_of_named(model)}
        library, conf = avro(), subject_conf(None)
        self._read = {
            has_choice: library.AvroDeserializer(client, own, made, has_choice, conf=conf)
            for has_choice, made in self._made.items()
        }

    def __call__(self, data: bytes, context: Any) -> Any:
        """Return the value of a record.

        Raises:
            ValueError: the value or its schema exceeds a bound.
        """
        name = schema_name(data)
        known = self._known.get(name)
        if known is None and len(data) > len(name):
            known = self._known_writer(name, self._schema_of(data, context))
        if known is None:
            return self._read[False](data, context)
        if known.cost.fits(len(data), self._defaults):
            return self._read[known.has_choice](data, context)
        schema = self._schema_of(data, context)
        named = self._schemas.named_in(schema)
        value = self._child.decode(
            schema.schema_str, named, self._own, data[len(name) :], known.has_choice
        )
        made = self._made[known.has_choice]
        return value if made is None else made(value, context)

    def _known_writer(self, name: bytes, schema: Any) -> _Writer:
        parsed, named = _parsed(schema.schema_str, self._schemas.named_in(schema))
        has_choice = self._own_has_choice
        if has_choice is None:
            has_choice = any(map(has_record_choice, (parsed, *named.values())))
        if len(self._known) >= KNOWN:
            self._known.clear()
        self._known[name] = _Writer(cost_of(parsed, named), has_choice)
        return self._known[name]

    def _schema_of(self, data: bytes, context: Any) -> Any:
        from confluent_kafka import schema_registry
        from confluent_kafka.schema_registry.serde import SchemaId

        library: Any = schema_registry
        found = SchemaId("AVRO")
        library.dual_schema_id_deserializer(data, context, found)
        if found.id is not None:
            return self._client.get_schema(found.id, None, None)
        return self._client.get_schema_by_guid(str(found.guid), None)


def _maker(model: type[BaseModel] | None) -> Callable[[Any, Any], Any] | None:
    return None if model is None else lambda value, _: model.model_validate(value)


def _maker_of_named(model: type[BaseModel] | None) -> Callable[[Any, Any], Any]:
    if model is None:
        return lambda value, _: with_names(value, None)
    classes = classes_of(model)
    return lambda value, _: model.model_validate(with_names(value, classes))


def _parsed(text: str, named: dict[str, str]) -> tuple[Any, dict[str, Any]]:
    schemas = {name: json.loads(found) for name, found in named.items()}
    # A schema is named by its reference, and by its own full name.
    for found in list(schemas.values()):
        if isinstance(found, dict) and "name" in found:
            name, space = found["name"], found.get("namespace")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            schemas[f"{space}.{name}" if space and "." not in name else name] = found
    return json.loads(text), schemas
