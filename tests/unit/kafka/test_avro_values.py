"""Avro holds what a value is, or refuses it: types, unions, and times in any zone."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as time_of_day
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
import pytest
from fastavro import schemaless_reader  # pyright: ignore[reportUnknownVariableType]
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from eosframework.config import RegistrySettings
from eosframework.kafka.schema_registry.avro_values import NamedRecord
from eosframework.kafka.schema_registry.schema_codecs import SchemaRegistry
from eosframework.serialization.schemas import Codec, Format, Registered
from eosframework.serialization.serdes import JSON

INSTANT = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
DAY = {"type": "int", "logicalType": "date"}
DAYTIME = {"type": "long", "logicalType": "time-micros"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
FIXED_MONEY = {**MONEY, "type": "fixed", "size": 3, "name": "Cents"}
ID = {"type": "string", "logicalType": "uuid"}
CARD = {"type": "record", "name": "Card", "fields": [{"name": "cents", "type": "long"}]}
CASH = {**CARD, "name": "Cash"}
NAMED = {**CARD, "name": "Bill", "fields": [*CARD["fields"], {"name": "to", "type": "string"}]}
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "by", "type": [CARD, CASH, NAMED, "null"]},
        {"name": "others", "type": {"type": "array", "items": ["Card", "Cash"]}, "default": []},
    ],
}


class Card(BaseModel):
    cents: int


class Cash(BaseModel):
    cents: int


class Payment(BaseModel):
    by: Card | Cash | None = Field(alias="by")
    others: list[Card | Cash] = []


class Paint(StrEnum):
    RED = "red"


def codec(schema: Any, model: type[BaseModel] | None = None) -> Codec:
    declared = Registered(Format.AVRO, "given")
    made = Codec(declared, json.dumps(schema), model, "topic").at("t", is_key=False, written=True)
    SchemaRegistry(RegistrySettings(), local=True).bind([made])
    return made


def in_field(schema: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": schema}]}


def read_by_others(schema: Any, data: bytes, names: bool = False) -> Any:
    return schemaless_reader(io.BytesIO(data[5:]), schema, None, names)


def written(schema: Any, value: Any) -> Any:
    """Return what another reader finds."""
    record = in_field(schema)
    found: Any = read_by_others(record, codec(record).encode({"v": value}))
    return found["v"]


@pytest.fixture(autouse=True)
def _far_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


EAST = timezone(timedelta(hours=2))
NOON = datetime(2026, 1, 1, 12, 0, 0, 5)

HELD = [
    (INSTANT, NOON, NOON.replace(tzinfo=UTC)),
    (INSTANT, NOON.replace(tzinfo=EAST), NOON.replace(hour=10, tzinfo=UTC)),
    (INSTANT, datetime.min, datetime.min.replace(tzinfo=UTC)),
    (INSTANT, datetime.max, datetime.max.replace(tzinfo=UTC)),
    (
        MILLIS,
        datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
    ),
    (NANOS, NOON, 1_767_268_800_000_005_000),
    (LOCAL, NOON, NOON),
    (DAY, date.max, date.max),
    (DAY, "2026-01-01", date(2026, 1, 1)),
    (DAYTIME, time_of_day.max, time_of_day.max),
    (MONEY, Decimal("1.200"), Decimal("1.20")),
    (MONEY, Decimal("-999.99"), Decimal("-999.99")),
    (MONEY, Decimal("1E+2"), Decimal("100.00")),
    (MONEY, 7, Decimal("7.00")),
    (FIXED_MONEY, Decimal("-999.99"), Decimal("-999.99")),
    (ID, UUID(int=5), UUID(int=5)),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("double", 2**53, float(2**53)),
    ("double", math.inf, math.inf),
    ("float", 0.5, 0.5),
    ("string", Paint.RED, "red"),
    ({"type": "enum", "name": "E", "symbols": ["red"]}, Paint.RED, "red"),
    (["double", "long"], 2**53 + 1, 2**53 + 1),
    (["float", "double"], 0.1, 0.1),
    (["int", "boolean"], True, True),
    (["long", "double"], 1.5, 1.5),
    (["bytes", "string"], "x", "x"),
    (["null", INSTANT], NOON, NOON.replace(tzinfo=UTC)),
    ({"type": "array", "items": "long"}, (1, 2), [1, 2]),
]

REFUSED = [
    (INSTANT, 2**62),
    (INSTANT, True),
    (INSTANT, "2026-01-01"),
    (NANOS, datetime.max),
    (LOCAL, NOON.replace(tzinfo=EAST)),
    (DAY, NOON),
    (DAYTIME, time_of_day(12, tzinfo=EAST)),
    (MONEY, Decimal("1.234")),
    (MONEY, Decimal("1000")),
    (MONEY, Decimal("NaN")),
    (MONEY, 0.1),
    (FIXED_MONEY, Decimal("-99999")),
    (ID, "x"),
    ("int", 2**31),
    ("int", True),
    ("long", 2**63),
    ("long", 1.5),
    ("long", "5"),
    ("double", 2**53 + 1),
    ("double", 10**400),
    ("double", Decimal("0.1")),
    ("float", 1e300),
    ("float", 2**24 + 1),
    ("boolean", 1),
    ("null", 0),
    ("string", b"x"),
    ("string", 5),
    ("bytes", "x"),
    ({"type": "fixed", "name": "F", "size": 3}, b"ab"),
    ({"type": "array", "items": "string"}, "abc"),
    ({"type": "map", "values": "long"}, {1: 2}),
    (["null", "long"], 1.5),
    (["int", "string"], 2**40),
    (CARD, {"cents": 1.5}),
    (CARD, {}),
]


@pytest.mark.parametrize(("schema", "value", "found"), HELD)
def test_another_reader_finds_the_value(schema: Any, value: Any, found: Any) -> None:
    again = written(schema, value)
    assert (again, type(again)) == (found, type(found))


@pytest.mark.parametrize(("schema", "value"), REFUSED)
def test_a_value_that_its_type_does_not_hold_is_refused_at_its_place(
    schema: Any, value: Any
) -> None:
    with pytest.raises(ValueError, match=r"^v.*: "):
        written(schema, value)


NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.floats(width=32),
    st.booleans(),
    st.sampled_from([2**31, 2**53 + 1, 2**63, -(2**63) - 1, 0, -0.0]),
)


@given(value=NUMBERS, order=st.permutations(["int", "long", "double", "boolean"]), few=st.data())
@settings(max_examples=50)
def test_a_number_in_a_union_keeps_its_value_and_type(
    value: Any, order: list[str], few: st.DataObject
) -> None:
    union = order[: few.draw(st.integers(1, 4))]
    try:
        found = written(union, value)
    except ValueError:
        holders = {"boolean"} if type(value) is bool else {"double"}
        if type(value) is int:
            holders = {"int"} if abs(value) < 2**31 else set()
            holders |= {"long"} if abs(value) < 2**63 else set()
        assert holders.isdisjoint(union)
    else:
        assert found == value or math.isnan(value)
        fits = {"int": 2**31, "long": 2**63}
        holds_exactly = type(value) is not int or any(abs(value) < fits.get(b, 0) for b in union)
        assert type(found) is type(value) or not holds_exactly


@given(
    schema=st.sampled_from([INSTANT, MILLIS, ["null", INSTANT]]),
    value=st.datetimes(timezones=st.sampled_from([None, UTC, EAST])),
)
@settings(max_examples=50)
def test_an_instant_is_the_same_for_each_reader(schema: Any, value: datetime) -> None:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    unit = timedelta(milliseconds=1) if schema is MILLIS else timedelta(microseconds=1)
    try:
        found = written(schema, value)
    except ValueError:
        assert not 1 < value.year < 9999
    else:
        assert timedelta(0) <= aware - found < unit


# --- unions of records --------------------------------------------------------------------


def test_a_record_keeps_its_branch_from_topic_to_topic() -> None:
    made = codec(PAYMENT)
    one = {
        "by": ("shop.Cash", {"cents": 5}),
        "others": [("Card", {"cents": 1}), ("Cash", {"cents": 2})],
    }
    data = made.encode(one)
    value = made.decode(data)
    assert value == {"by": {"cents": 5}, "others": [{"cents": 1}, {"cents": 2}]}
    for same in (value, copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert same["by"].name == "shop.Cash"
        assert made.encode(same) == data
    value["by"]["cents"] = 6
    found: Any = read_by_others(PAYMENT, made.encode(value), names=True)
    assert found["by"] == ("shop.Cash", {"cents": 6})
    assert JSON.encode is not None
    assert orjson.loads(JSON.encode(value))["by"] == {"cents": 6}


def test_a_model_keeps_its_branch() -> None:
    made = codec(PAYMENT, Payment)
    value = Payment(by=Cash(cents=5), others=[Cash(cents=1), Card(cents=2)])
    data = made.encode(value)
    found: Any = read_by_others(PAYMENT, data, names=True)
    assert found["by"] == ("shop.Cash", {"cents": 5})
    assert [name for name, _ in found["others"]] == ["shop.Cash", "shop.Card"]
    assert made.decode(data) == value
    assert made.decode(codec(PAYMENT).encode({"by": None})) == Payment(by=None)


def test_a_map_that_several_records_hold_is_refused_by_name() -> None:
    made = codec(PAYMENT)
    with pytest.raises(ValueError, match=r"by: .*any of shop.Card, shop.Cash; name the one"):
        made.encode({"by": {"cents": 5}})
    found: Any = read_by_others(PAYMENT, made.encode({"by": {"cents": 5, "to": "A"}}), names=True)
    assert found["by"][0] == "shop.Bill"
    assert made.encode({"by": {"-type": "Cash", "cents": 5}}) == made.encode(
        {"by": NamedRecord("shop.Cash", {"cents": 5})}
    )


def test_a_recursive_type_is_checked_at_each_level() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "more", "type": {"type": "array", "items": ["Tree", CARD]}},
        ],
    }
    made = codec(tree)
    value = {"n": 1, "more": [{"n": 2, "more": []}, {"cents": 3}]}
    assert made.decode(made.encode(value)) == value
    with pytest.raises(ValueError, match=r"more\[0\].*Tree\.n: expected an integer of 32 bits"):
        made.encode({"n": 1, "more": [{"n": 2**40, "more": []}]})


def test_a_child_process_names_records_too() -> None:
    nulls = {"type": "array", "items": ["null", CARD, CASH]}
    made = codec(in_field(nulls))
    data = made.encode({"v": [None] * 3 + [("Cash", {"cents": 1})]})
    assert [getattr(each, "name", None) for each in made.decode(data)["v"]][3:] == ["Cash"]
    assert made.encode(made.decode(data)) == data


class Bill(BaseModel):
    amount: Decimal


def test_a_decimal_of_json_with_a_schema_keeps_its_digits() -> None:
    declared = Registered(Format.JSON_SCHEMA, model="given")
    schema = {"type": "object", "properties": {"amount": {"type": ["number", "string"]}}}
    made = Codec(declared, json.dumps(schema), Bill, "t").at("t", is_key=False, written=True)
    SchemaRegistry(RegistrySettings(), local=True).bind([made])
    data = made.encode(Bill(amount=Decimal("1234567890123456.78")))
    assert made.decode(data) == Bill(amount=Decimal("1234567890123456.78"))
    as_number = data[:5] + b'{"amount":1234567890123456.78}'
    assert made.decode(as_number) == Bill(amount=Decimal("1234567890123456.78"))
