"""From an Avro schema follows how much a value can cost, or that nothing bounds it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from eosframework.serialization.avro_cost import cost_of, levels_of
from eosframework.serialization.bounds import (
    AVRO_DECIMAL_BYTES,
    AVRO_LEVELS,
    AVRO_VALUES,
    SCHEMA_TYPES,
)

NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "a.b",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "more", "type": {"type": "array", "items": "Node"}},
    ],
}


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


def record(name: str, *types: Any) -> Any:
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


@pytest.mark.parametrize(
    "items",
    ["null", record("R"), record("R", "null", "null"), {"type": "fixed", "name": "F", "size": 0}],
    ids=str,
)
def test_items_of_no_bytes_are_not_bounded(items: Any) -> None:
    for schema in (array(items), record("Root", "int", array(items))):
        assert cost_of(schema).values_per_byte is None
        assert not cost_of(schema).fits(1)
    assert cost_of({"type": "map", "values": items}).values_per_byte is not None
    assert cost_of(array([items, "int"])).values_per_byte is not None


def test_a_bound_holds_up_to_its_last_byte() -> None:
    wide = cost_of(array(record("R", "boolean", *["null"] * 99)))
    assert wide.values_per_byte == 101
    size = (AVRO_VALUES.value - wide.values) // 101
    assert [wide.fits(size + more) for more in (-1, 0, 1)] == [True, True, False]
    assert not wide.fits(size, defaults=1)
    deep = cost_of(NODE)
    assert deep.is_recursive
    size = AVRO_LEVELS.value // deep.levels
    assert [deep.fits(size + more) for more in (-1, 0, 1)] == [True, True, False]
    decimal = cost_of({"type": "bytes", "logicalType": "decimal", "precision": 9})
    size = AVRO_DECIMAL_BYTES.value
    assert [decimal.fits(size + more) for more in (-1, 0, 1)] == [True, True, False]
    assert cost_of("bytes").fits(10**9)


def test_named_types_count_where_they_are_used() -> None:
    def doubled(times: int) -> Any:
        found = record("R0")
        for n in range(1, times):
            found = record(f"R{n}", found, f"R{n - 1}")
        return found

    assert cost_of(doubled(12)).values == 2**12 - 1
    with pytest.raises(ValueError, match=f"expected at most {SCHEMA_TYPES.value}"):
        cost_of(doubled(60))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (record("R", "R"), "contains itself"),
        (record("R", "Unknown"), "has no type 'Unknown'"),
        (5, "is no Avro type"),
        ({"type": "array"}, "is no Avro type"),
    ],
)
def test_a_schema_without_values_is_refused(schema: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        cost_of(schema)


def test_names_are_found_in_their_namespace_and_among_references() -> None:
    assert cost_of(NODE).is_recursive
    assert not cost_of(record("R", "c.Other"), {"c.Other": record("Other", "int")}).is_recursive
    assert cost_of(record("R", ["null", "R"])).is_recursive


def test_levels_are_those_of_brackets_outside_of_texts() -> None:
    assert levels_of('{"a": [1, {"b": "[[[\\"{{"}], "c": [[]]}') == 3
    assert levels_of('"[') == 1  # no JSON: the bracket counts
    assert levels_of("[" * 20_000) == 20_000


TYPES = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "string", "double"]),
    lambda inner: st.one_of(
        inner.map(array),
        inner.map(lambda values: {"type": "map", "values": values}),
        st.lists(inner, min_size=1, max_size=3).map(lambda types: ("record", types)),
        inner.filter(lambda t: t != "null" and not isinstance(t, list)).map(lambda t: ["null", t]),
    ),
    max_leaves=8,
)


def named(schema: Any, count: list[int]) -> Any:
    """Give each record a name of its own."""
    match schema:
        case ("record", types):
            count[0] += 1
            return record(f"R{count[0]}", *[named(each, count) for each in types])
        case {"type": kind, **rest}:
            return {"type": kind, **{key: named(value, count) for key, value in rest.items()}}
        case [*branches]:
            return [named(each, count) for each in branches]
        case _:
            return schema


def size_of(value: Any) -> int:
    """Return how many values a value holds, with itself."""
    if isinstance(value, dict):
        return 1 + sum(map(size_of, value.values()))
    return 1 + sum(map(size_of, value)) if isinstance(value, list) else 1


@given(TYPES, st.binary(max_size=60))
def test_what_a_schema_bounds_is_what_its_values_hold(drawn: Any, data: bytes) -> None:
    schema = named(drawn, [0])
    cost = cost_of(json.loads(json.dumps(schema)))
    if cost.values_per_byte is None:
        return
    try:
        value = schemaless_reader(io.BytesIO(data), parse_schema(schema), None)
    except Exception:  # most bytes are no value
        return
    assert size_of(value) <= cost.values + cost.values_per_byte * len(data)
    written = io.BytesIO()
    schemaless_writer(written, parse_schema(schema), value)
