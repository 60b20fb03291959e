"""Decoding of Avro values of any writer, within bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from eosframework.kafka.schema_registry.child_decoder import ChildDecoder
from eosframework.kafka.schema_registry.foreign_schemas import KNOWN, ForeignSchemas
from eosframework.kafka.schema_registry.registry_client import avro, subject_conf
from eosframework.serialization.avro_cost import Cost, cost_of

_BY_ID, _BY_GUID = 5, 17
"""Bytes that name a value's schema: a magic byte with an id, or another one with a GUID."""


class AvroReader:
    """Decodes a value here if its schema and size bound what that costs, else in a child process.

    Args:
        client: of the registry.
        schemas: of the same client.
        own: text of the schema to read values with; None: that of the writer.
        from_map: makes the value of its fields; None: they are the value.
        child: decodes what this process does not.
    """

    def __init__(
        self,
        client: Any,
        schemas: ForeignSchemas,
        own: str | None,
        from_map: Callable[[Any, Any], Any] | None,
        child: ChildDecoder,
    ) -> None:
        self._client = client
        self._schemas = schemas
        self._own = own
        self._from_map = from_map
        self._child = child
        self._defaults = 0 if own is None else cost_of(json.loads(own)).values
        self._costs: dict[bytes, Cost] = {}
        self._read = avro().AvroDeserializer(client, own, from_map, conf=subject_conf(None))

    def __call__(self, data: bytes, context: Any) -> Any:
        """Return the value of a record.

        Raises:
            ValueError: the value or its schema exceeds a bound.
        """
        name = data[: _BY_GUID if data[:1] == b"\1" else _BY_ID]
        cost = self._costs.get(name)
        if cost is None and len(data) > len(name):
            schema = self._schema_of(data, context)
            cost = cost_of(*_parsed(schema.schema_str, self._schemas.named_in(schema)))
            if len(self._costs) >= KNOWN:
                self._costs.clear()
            self._costs[name] = cost
        if cost is None or cost.fits(len(data), self._defaults):
            return self._read(data, context)
        schema = self._schema_of(data, context)
        named = self._schemas.named_in(schema)
        value = self._child.decode(schema.schema_str, named, self._own, data[len(name) :])
        return value if self._from_map is None else self._from_map(value, context)

    def _schema_of(self, data: bytes, context: Any) -> Any:
        from confluent_kafka import schema_registry
        from confluent_kafka.schema_registry.serde import SchemaId

        library: Any = schema_registry
        found = SchemaId("AVRO")
        library.dual_schema_id_deserializer(data, context, found)
        if found.id is not None:
            return self._client.get_schema(found.id, None, None)
        return self._client.get_schema_by_guid(str(found.guid), None)


def _parsed(text: str, named: dict[str, str]) -> tuple[Any, dict[str, Any]]:
    schemas = {name: json.loads(found) for name, found in named.items()}
    # A schema is named by its reference, and by its own full name.
    for found in list(schemas.values()):
        if isinstance(found, dict) and "name" in found:
            name, space = found["name"], found.get("namespace")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            schemas[f"{space}.{name}" if space and "." not in name else name] = found
    return json.loads(text), schemas
