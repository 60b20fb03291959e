"""Values and schemas of other writers are decoded within bounds, in a child process if need be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.error import SchemaRegistryError

from eosframework.kafka.schema_registry.child_decoder import ChildDecoder
from eosframework.kafka.schema_registry.foreign_schemas import ForeignSchemas
from eosframework.serialization.bounds import (
    DECODED_BYTES,
    DECODING_SECONDS,
    SCHEMA_BYTES,
    SCHEMA_LEVELS,
    SCHEMA_REFERENCES,
    UNKNOWN_SCHEMA_SECONDS,
)
from tests.hostile.foreign_schemas import LIST_OF_ITSELF, NULLS, avro_number, nested

LISTS = json.dumps(LIST_OF_ITSELF)


@pytest.fixture
def child() -> Iterator[ChildDecoder]:
    made = ChildDecoder()
    yield made
    made.close()


def test_a_value_that_ends_its_decoder_is_an_error_and_the_next_one_is_decoded(
    child: ChildDecoder,
) -> None:
    refused = {
        "deep": (LISTS, nested(20_000)),
        "nulls": (json.dumps(NULLS), avro_number(10**13) + b"\0"),
        "large": (json.dumps(NULLS), avro_number(DECODED_BYTES.value) + b"\0"),
        "torn": ('"string"', b"\x0aab"),
        "no schema": ('{"type": "unknown"}', b""),
    }
    for name, (schema, data) in refused.items():
        with pytest.raises(ValueError, match=r"\w") as error:
            child.decode(schema, {}, None, data)
        assert "Traceback" not in str(error.value), name
        assert child.decode(LISTS, {}, None, nested(2)) == {"more": [{"more": [{"more": []}]}]}


def test_a_value_is_read_with_references_and_the_schema_of_the_reader(child: ChildDecoder) -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    line = {"type": "record", "name": "Line", "fields": [{"name": "to", "type": "Point"}]}
    named = {"Point": json.dumps(point)}
    assert child.decode(json.dumps(line), named, None, b"\4") == {"to": {"x": 2}}
    own = {**point, "fields": [*point["fields"], {"name": "y", "type": "int", "default": 7}]}  # type: ignore[misc]
    assert child.decode(json.dumps(point), {}, json.dumps(own), b"\4") == {"x": 2, "y": 7}


class Client:
    """A registry's client that knows some schemas."""

    def __init__(self, **schemas: Schema) -> None:
        self.schemas = schemas
        self.asked: list[object] = []

    def get_schema(self, number: int, *_: Any) -> Schema:
        self.asked.append(number)
        if str(number) not in self.schemas:
            raise SchemaRegistryError(404, 40403, "Schema not found")
        return self.schemas[str(number)]

    def get_schema_by_guid(self, guid: str, *_: Any) -> Schema:
        return self.get_schema(int(guid))

    def get_version(self, subject: str, version: int, _: bool) -> Any:
        class Found:
            schema = self.schemas[subject]

        return Found


def referring(*subjects: str) -> Schema:
    references = [SchemaReference(name, name, 1) for name in subjects]
    return Schema('"int"', "AVRO", references)


def accepted(**schemas: Schema) -> bool:
    client: Any = Client(**schemas)
    ForeignSchemas(client)
    try:
        client.get_schema(1, None, None)
    except ValueError as error:
        return "the record's schema is refused" not in str(error)
    return True


def test_a_schema_is_taken_up_to_each_bound() -> None:
    for more, taken in ((-1, True), (0, True), (1, False)):
        size, levels = SCHEMA_BYTES.value + more, SCHEMA_LEVELS.value + more
        assert accepted(**{"1": Schema('"' + "x" * (size - 2) + '"', "AVRO")}) is taken
        assert accepted(**{"1": Schema("[" * levels + "]" * levels, "AVRO")}) is taken
        names = [f"s{n}" for n in range(SCHEMA_REFERENCES.value + more)]
        leaves = {name: Schema('"int"', "AVRO") for name in names}
        assert accepted(**{"1": referring(*names)}, **leaves) is taken
    chain = {f"s{n}": referring(f"s{n + 1}", f"s{n + 1}") for n in range(60)}
    assert not accepted(**{"1": referring("s0")}, **chain, s60=Schema('"int"', "AVRO"))


def test_an_unknown_schema_is_asked_for_once_in_a_while() -> None:
    client: Any = Client(**{"2": Schema('"int"', "AVRO")})
    now = 0.0
    ForeignSchemas(client, lambda: now)
    for at, count in (
        (0.0, 1),
        (UNKNOWN_SCHEMA_SECONDS.value - 0.1, 1),
        (UNKNOWN_SCHEMA_SECONDS.value, 2),
    ):
        now = at
        for _ in range(3):
            with pytest.raises(SchemaRegistryError, match="Schema not found"):
                client.get_schema(1, None, None)
        assert client.asked.count(1) == count
    assert client.get_schema(2, None, None) is client.schemas["2"]


def test_decoding_ends_within_its_time(child: ChildDecoder) -> None:
    """What the reader leaves out takes no memory, however often it is there."""
    number = {"name": "n", "type": "int"}
    own = {"type": "record", "name": "R", "fields": [number]}
    writer = {**own, "fields": [{"name": "nulls", "type": NULLS}, number]}
    with pytest.raises(ValueError, match=f"not decoded after {DECODING_SECONDS.value} seconds"):
        child.decode(json.dumps(writer), {}, json.dumps(own), avro_number(10**13) + b"\0\2")
    assert child.decode(json.dumps(writer), {}, json.dumps(own), b"\6\0\2") == {"n": 1}
