"""What a serde encodes it decodes again, or it refuses the value by an error of the record."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import DecodeError
from pydantic import BaseModel, ConfigDict, field_serializer
from pydantic.dataclasses import dataclass

from eosframework.config import RegistrySettings
from eosframework.engine.failures.failure_handler import is_of_the_framework, summary
from eosframework.engine.operators.entries import EntryFormat, packed_all, unpacked
from eosframework.engine.operators.time_windows import _identity
from eosframework.engine.operators.windows import Span, SpansFormat
from eosframework.kafka.schema_registry.schema_codecs import SchemaRegistry
from eosframework.records import WindowResult
from eosframework.serialization.schemas import avro, codec_of, json_schema, protobuf
from eosframework.serialization.serdes import (
    CHECKED_BYTES,
    FLOAT,
    INTEGER,
    JSON,
    STRING,
    WINDOW,
    Serde,
    codec_serde,
    serde_of,
)
from tests.support.applications.schema_functions import message_class

REFUSALS = (TypeError, ValueError, OverflowError, RecursionError, struct.error, DecodeError)
"""What a user's own mistake raises; each goes the way of on_error."""

NAN, INFINITY = float("nan"), float("inf")


@dataclass
class Place:
    height: float = 0.0


class Gauge(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    name: str = ""
    count: int = 0
    level: float = 0.0
    last: float | None = None
    inside: Gauge | None = None
    places: list[Place] = []
    limits: dict[str, float] = {}
    rest: Any = None


class InWords(BaseModel):
    """Has a form of its own for NaN."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    level: float
    note: str | None = None


class InConstants(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")

    level: float
    note: str | None = None


class ByItself(BaseModel):
    level: float
    note: str | None = None

    @field_serializer("level", when_used="json")
    def _written(self, level: float) -> str:
        return str(level)


def same(one: Any, other: Any) -> bool:
    """Compare values of which a NaN equals itself; an integer is no float."""
    left = [(one, other)]
    while left:
        one, other = left.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, (BaseModel, WindowResult, Place)):
            one, other = _members(one), _members(other)
        if isinstance(one, dict):
            if one.keys() != other.keys():
                return False
            left += [(one[name], other[name]) for name in one]
        elif isinstance(one, list):
            if len(one) != len(other):
                return False
            left += zip(one, other, strict=True)
        elif one != other and not (one != one and other != other):
            return False
    return True


def _members(value: Any) -> dict[str, Any]:
    if isinstance(value, WindowResult):
        return {"start": value.start, "end": value.end, "value": value.value}
    return dict(value.__dict__)


def holds(serde: Serde, value: Any) -> None:
    """Check the promise of this page for one value."""
    assert serde.encode is not None
    try:
        data = serde.encode(value)
    except REFUSALS as error:
        refused: Exception | None = error
    else:
        refused = None
    if refused is not None:
        assert not is_of_the_framework(refused)
        assert summary(refused).encode()
        return
    decoded = serde.decode(data) if serde.decode is not None else data
    assert same(decoded, value), data[:1000]


def nested(depth: int, wrap: Callable[[Any], Any], value: Any = None) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


def _in_list(value: Any) -> Any:
    return [value]


def _in_dict(value: Any) -> Any:
    return {"": value}


texts = st.text() | st.text(st.characters(categories=["Cs", "Ll", "Cc"]), max_size=3)
integers = (
    st.integers()
    | st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64])
    | st.builds(pow, st.just(10), st.sampled_from([400, 4299, 4300, 5000]))
)
scalars = st.none() | st.booleans() | integers | st.floats() | texts
depths = st.sampled_from([1, 50, 198, 199, 200, 201, 252, 253, 254, 255, 300])
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
) | st.builds(nested, depths, st.sampled_from([_in_list, _in_dict]), scalars)
gauges = st.recursive(
    st.builds(
        Gauge.model_construct,
        name=texts,
        count=integers,
        level=st.floats(),
        last=st.none() | st.floats(),
        places=st.lists(st.builds(Place, st.floats()), max_size=2),
        limits=st.dictionaries(texts, st.floats(), max_size=3),
        rest=anything,
    ),
    lambda inner: st.builds(Gauge.model_construct, inside=inner, last=st.floats()),
)
deep_gauges = st.builds(
    nested, depths, st.just(lambda inner: Gauge.model_construct(inside=inner)), st.none()
).filter(lambda gauge: gauge is not None)
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "level", "type": "double"},
        {"name": "count", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "last", "type": ["null", "double"]},
    ],
}
PLAIN = [INTEGER, FLOAT, STRING, CHECKED_BYTES]
SCHEMA = {"title": "All", "type": "object"}


def registered(declared: Any) -> Serde:
    codec = codec_of(declared).at("topic", is_key=False, written=True)
    SchemaRegistry(RegistrySettings(), local=True).bind([codec])
    return codec_serde(codec)


@pytest.mark.parametrize("serde", [JSON, WINDOW], ids=["json", "window"])
@given(anything)
@example({"delay": NAN})
@example([None, {"a": [INFINITY]}])
@example(2**63)
@example("\ud800")
@example("")
@example({})
def test_json_holds_every_value_or_refuses_it(serde: Serde, value: Any) -> None:
    holds(serde, value)


@given(anything)
@example(NAN)
@example(None)
def test_results_of_windows_hold_every_value_or_refuse_it(value: Any) -> None:
    holds(WINDOW, WindowResult(1, 2, value))


@settings(max_examples=200)
@given(gauges | deep_gauges)
def test_models_hold_every_value_or_refuse_it(value: Any) -> None:
    holds(serde_of(Gauge), value)


@pytest.mark.parametrize(
    "value",
    [
        Gauge(level=NAN),
        Gauge(last=INFINITY),
        Gauge(rest=[NAN, None]),
        Gauge(places=[Place(NAN)]),
        Gauge.model_construct(count=10**4300),
        Gauge.model_construct(limits={"\ud800": 1.0}),
        nested(201, lambda inner: Gauge.model_construct(inside=inner)),
        Gauge(rest=nested(201, _in_list)),
    ],
    ids=["nan", "infinity", "any", "dataclass", "long", "surrogate", "deep", "deep any"],
)
def test_what_pydantic_writes_and_does_not_read_is_refused(value: Any) -> None:
    serde = serde_of(Gauge)
    assert serde.encode is not None
    with pytest.raises(ValueError, match=r"JSON|surrogates"):
        serde.encode(value)


@pytest.mark.parametrize("model", [InWords, InConstants, ByItself])
@given(st.floats(), st.none() | st.text())
@example(NAN, None)
@example(INFINITY, "NaN")
def test_models_with_a_form_of_their_own_for_nan_keep_it(
    model: Any, level: float, note: str | None
) -> None:
    serde, value = serde_of(model), model(level=level, note=note)
    assert serde.encode is not None
    assert serde.decode is not None
    assert same(serde.decode(serde.encode(value)), value)


@pytest.mark.parametrize("serde", PLAIN, ids=[serde.name for serde in PLAIN])
@given(scalars | st.binary())
@example(2**53 + 1)
@example(10**400)
@example(NAN)
@example("\ud800")
@example(b"")
def test_plain_serdes_hold_every_value_or_refuse_it(serde: Serde, value: Any) -> None:
    if serde is FLOAT and type(value) is int:
        assert serde.encode is not None
        try:
            data = serde.encode(value)
        except REFUSALS:
            return
        assert FLOAT.decode is not None
        assert FLOAT.decode(data) == value
        return
    holds(serde, value)


@settings(max_examples=60)
@given(st.floats(), integers, texts, st.none() | st.floats(), anything)
@example(NAN, 2**63, "\ud800", INFINITY, NAN)
@example(0.0, 0, "\ud800\udc00", None, "\ud800\udc00")
def test_serdes_of_a_schema_registry_hold_every_value_or_refuse_it(
    level: float, count: int, name: str, last: float | None, rest: Any
) -> None:
    for serde, value in (
        (OF_AVRO, {"level": level, "count": count, "name": name, "last": last}),
        (OF_JSON_SCHEMA, {"level": level, "count": count, "name": name, "rest": rest}),
    ):
        holds(serde, value)
    try:
        message = MESSAGE(carrier=name, minutes=count)
    except REFUSALS:
        return  # no message holds them
    holds(OF_PROTOBUF, message)


MESSAGE = message_class()
OF_AVRO = registered(avro(f"{__name__}:AVRO"))
OF_JSON_SCHEMA = registered(json_schema(f"{__name__}:SCHEMA"))
OF_PROTOBUF = registered(protobuf(f"{__name__}:MESSAGE"))


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.binary())))
def test_values_that_lie_together_in_an_entry_come_out_as_they_went_in(values: Any) -> None:
    assert list(unpacked(packed_all(values))) == values


@given(anything, st.integers(0, 2**63))
def test_entries_of_stores_hold_every_value_or_refuse_it(value: Any, timestamp: int) -> None:
    form = EntryFormat("store", JSON)
    try:
        data = form.encode((value, timestamp))
    except REFUSALS:
        return
    assert same(form.decode(data)[0], value)
    spans = SpansFormat("store", JSON)
    span = Span(-1, 2, timestamp, False, spans.encode_value(value))
    assert spans.decode(spans.encode(((span,), timestamp))) == ((span,), timestamp)


@given(st.binary(max_size=2), anything, st.binary(max_size=2), anything)
@example(b"", None, b"", NAN)
def test_no_two_records_pass_for_the_same_one(
    key: bytes, shared: Any, other_key: bytes, other: Any
) -> None:
    """NaN went by the same bytes as None."""
    try:
        same_bytes = _identity(key, shared) == _identity(other_key, other)
    except REFUSALS:
        return
    assert same_bytes == (key == other_key and sorted_json(shared) == sorted_json(other))


def sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True).replace("-0.0", "0.0")


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (JSON, b'{"level": NaN}'),
        (JSON, b"[1e999]"),
        (serde_of(Gauge), b'{"level": NaN}'),
        (serde_of(Gauge), b'{"rest": [-Infinity]}'),
        (OF_JSON_SCHEMA, None),
    ],
)
def test_nan_and_infinities_are_not_read_from_json(serde: Serde, data: bytes | None) -> None:
    assert serde.decode is not None
    if data is None:
        assert serde.encode is not None
        data = serde.encode({"level": 0.5}).replace(b"0.5", b"NaN")
    with pytest.raises((ValueError, DecodeError), match=r"JSON|infinity|out of range"):
        serde.decode(data)


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (JSON, {"a": [None, {"delay": NAN}]}, r"member 'delay' is nan, which JSON has no number"),
        (JSON, INFINITY, "the value is inf, which"),
        (serde_of(Gauge), Gauge(last=NAN), "member 'last' is nan"),
        (FLOAT, 2**53 + 1, "no float is exactly"),
    ],
)
def test_what_is_refused_is_named(serde: Serde, value: Any, message: str) -> None:
    assert serde.encode is not None
    with pytest.raises(ValueError, match=message):
        serde.encode(value)


def digits(least: int, most: int) -> st.SearchStrategy[str]:
    return st.integers(least, most).flatmap(
        lambda size: st.tuples(st.sampled_from("123456789"), st.just("0" * (size - 1))).map("".join)
    )


NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.one_of(digits(1, 5), digits(15, 25), digits(300, 320)),
    st.sampled_from(["", ".5", ".000000001"]),
    st.one_of(
        st.just(""),
        st.builds(
            "{}{}{}".format,
            st.sampled_from("eE"),
            st.sampled_from(["", "+", "-"]),
            st.integers(0, 1000),
        ),
    ),
)
"""Numbers as JSON writes them, around the limits of floats."""

FORMS = [
    (JSON, "{}"),
    (JSON, '{{"a":[{}]}}'),
    (serde_of(Gauge), '{{"level":{}}}'),
    (serde_of(Gauge), '{{"last":{},"name":"NaN"}}'),
    (serde_of(Gauge), '{{"rest":[{}],"name":"4e123"}}'),
    (serde_of(Gauge), '{{"limits":{{"Infinity":{}}}}}'),
    (serde_of(Gauge), '{{"inside":{{"places":[{{"height":{}}}]}}}}'),
    (serde_of(InWords), '{{"level":{}}}'),
    (serde_of(InWords), '{{"level":"Infinity","note":"{}"}}'),
    (serde_of(InConstants), '{{"level":{}}}'),
]


@given(number=NUMBERS, form=st.sampled_from(FORMS))
@example(number="1e400", form=FORMS[2])
@example(number="-1e999", form=FORMS[4])
@example(number="1" + "0" * 400, form=FORMS[2])
@example(number="1" + "0" * 400, form=FORMS[4])
@example(number="1" + "0" * 400, form=(serde_of(Gauge), '{{"rest":{},"name":"NaN"}}'))
@settings(deadline=None)
def test_what_decode_takes_encode_writes(number: str, form: tuple[Serde, str]) -> None:
    """A number above the largest float is refused at the record, not at a later step."""
    serde, text = form
    assert serde.encode is not None
    assert serde.decode is not None
    try:
        value = serde.decode(text.format(number).encode())
    except REFUSALS:
        return
    again = serde.decode(serde.encode(value))
    assert same(again, value), (value, again)


def test_a_large_integer_beside_a_text_with_nan_is_read() -> None:
    serde = serde_of(Gauge)
    value = Gauge(name="NaN", rest=10**400)
    assert serde.encode is not None
    assert serde.decode is not None
    assert serde.decode(serde.encode(value)) == value
    with pytest.raises(ValueError, match="member 'level' is inf"):
        serde.decode(b'{"level":1e400}')
