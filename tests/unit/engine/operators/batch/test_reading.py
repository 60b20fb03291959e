"""JSON values become rows, each its own; what does not fit is refused whatever comes with it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from eosframework import Topology
from eosframework.engine.operators.arrow_conversion import Reader
from eosframework.errors import TopologyError
from eosframework.serialization.serdes import STRING
from eosframework.testing import TopologyTestDriver
from eosframework.topology.spec.batch_spec import columns_of
from tests.unit.engine.messages import Sent

TYPES = {"n": "int64", "x": "float64", "s": "string", "b": "bool"}

rows = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
        "s": st.none() | st.text(),
        "b": st.none() | st.booleans(),
        "other": st.none() | st.lists(st.dictionaries(st.text(), st.text(), max_size=2)),
    },
)


def reader(declared: Any) -> Reader:
    return Reader(columns_of(declared), STRING, lambda message: message.timestamp()[1])


def read(values: list[bytes], declared: Any = TYPES) -> list[dict[str, Any]]:
    messages = [Sent(value, key_=b"k%d" % i, time=i) for i, value in enumerate(values)]
    return reader(declared).read(messages, values).to_pylist()


@given(st.lists(rows, min_size=1, max_size=20), st.booleans())
def test_rows_are_what_the_json_serde_decodes(values: list[dict[str, Any]], pretty: bool) -> None:
    option = orjson.OPT_INDENT_2 if pretty else None
    found = read([orjson.dumps(value, option=option) for value in values])
    assert found == [{name: value.get(name) for name in TYPES} for value in values]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b" ",
        b"null",
        b"3",
        b"[]",
        b"{",
        b"}",
        b'{"n":1',
        b'{"n":1}{"n":2}',
        b'{"n":1} {"n":2}',
        b'{"n":1}\n{"n":2}',
        b'{"n":1},{"n":2}',
        b'{"n":1}}',
        b'{"n":"1"}',
        b'{"n":1.5}',
        b'{"n":9223372036854775808}',
        b'{"x":"1"}',
        b'{"s":1}',
        b'{"b":1}',
        b'{"n":{"n":1}}',
        b'{"s":"a\nb"}',
        b'{"s":"\xff"}',
        b'{"n":1,}',
        b'{"n":1} // comment',
        b'{"n":NaN}',
        b'{"s":"\\ud800"}',
        b'\x00{"n":1}',
    ],
)
def test_what_does_not_fit_is_refused_alone_and_among_others(bad: bytes) -> None:
    for values in ([bad], [b'{"n":1}', bad], [bad, b'{"n":1}'], [b'{"n":1}', bad, b'{"n":1}']):
        with pytest.raises(ValueError, match=r"."):
            read(values)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"n":1', b',"x":2}{"n":3}'),
        (b'{"n":1}{"n":2}', b""),
        (b"", b'{"n":1}{"n":2}'),
        (b'{"s":"a', b'b"}{"n":1}'),
        (b'{"other":{"n":1}', b'}{"n":1}'),
        (b'{"other":[{"n":1}', b'{"n":2}]}{"n":1}'),
        (b'{"n":1}\n', b'{"n":1}\n{"n":1}'),
    ],
)
def test_values_that_make_sense_only_together_are_refused(first: bytes, second: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read([first, second])


@given(
    st.lists(
        st.lists(
            st.sampled_from([b"{", b"}", b'"n"', b":", b"1", b",", b"\n", b" ", b'"', b"[", b"]"])
        ).map(b"".join)
        | st.just(b'{"n":1}'),
        min_size=2,
        max_size=4,
    )
)
def test_together_values_give_what_each_gives_alone(values: list[bytes]) -> None:
    alone = []
    for value in values:
        try:
            alone += read([value])
        except ValueError:
            alone.append(None)
    try:
        together = read(values)
    except ValueError:
        assert None in alone
    else:
        assert together == alone


def test_of_a_field_that_comes_twice_the_last_counts_as_everywhere() -> None:
    found = read([b'{"n":1,"n":2}', b'{"n":3}'])
    assert [row["n"] for row in found] == [2, 3]


def test_integers_that_a_float_rounds_are_rounded() -> None:
    app = Topology("rounded")
    app.stream("in", value="json").map_batch(lambda b: b, schema={"x": float}).to("out")
    driver = TopologyTestDriver(app)
    for value in (b'{"x":1}', b'{"x":9007199254740993}', b'{"x":0.5}'):
        driver.send("in", value)
    driver.run()
    assert [record.value["x"] for record in driver.read("out")] == [1.0, 2.0**53, 0.5]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("timestamp[ms]", "2026-03-05T12:15:00", datetime(2026, 3, 5, 12, 15)),
        ("timestamp[us, tz=UTC]", "2026-03-05T12:15:00Z", datetime(2026, 3, 5, 12, 15, tzinfo=UTC)),
        (pa.date32(), "2026-03-05", date(2026, 3, 5)),
        (pa.decimal128(9, 2), "12.50", Decimal("12.50")),
        (pa.dictionary(pa.int32(), pa.string()), "a", "a"),
        (pa.list_(pa.timestamp("s")), ["2026-03-05"], [datetime(2026, 3, 5)]),
        (pa.float32(), 0.5, 0.5),
    ],
)
def test_other_types_come_from_texts(kind: Any, text: Any, expected: Any) -> None:
    declared = {"at": kind} if isinstance(kind, str) else pa.schema([("at", kind)])
    assert read([orjson.dumps({"at": text}), b"{}"], declared) == [{"at": expected}, {"at": None}]
    with pytest.raises(ValueError, match=r"field 'at|does not fit its columns"):
        read([orjson.dumps({"at": [True]})], declared)


def test_a_type_that_json_cannot_give_is_refused_at_the_start() -> None:
    with pytest.raises(TopologyError, match=r"column 'm' is of type .* cannot be read from JSON"):
        reader(pa.schema([("m", pa.map_(pa.string(), pa.int8()))]))


@pytest.mark.parametrize("bad", [1.5, True, "1", [1]])
def test_what_is_nested_is_not_bent_either(bad: Any) -> None:
    schema = pa.schema([("at", pa.list_(pa.struct([("x", pa.int64())])))])
    assert read([b'{"at":[{"x":1},null]}'], schema) == [{"at": [{"x": 1}, None]}]
    with pytest.raises(ValueError, match=r"field 'at\[\]\.x' is of type"):
        read([orjson.dumps({"at": [{"x": bad}]})], schema)


def test_key_and_time_are_columns_where_the_schema_names_them() -> None:
    declared = {"_timestamp": "timestamp[ms]", "n": int, "_key": str}
    [_, second] = read([b'{"n":1}', b'{"n":2,"_key":"no"}'], declared)
    assert list(second) == ["_timestamp", "n", "_key"]
    assert (second["n"], second["_key"], second["_timestamp"].timestamp()) == (2, "k1", 0.001)


def test_key_and_time_alone_need_no_value_that_is_an_object() -> None:
    assert read([b"3"], {"_timestamp": "int64"}) == [{"_timestamp": 0}]


class Price(BaseModel):
    price: float
    origin: str | None = None


def test_a_model_says_what_is_required() -> None:
    assert read([b'{"price":1}'], Price) == [{"price": 1.0, "origin": None}]
    with pytest.raises(ValueError, match="'price' is null or missing"):
        read([b'{"price":1}', b"{}"], Price)


def test_a_schema_of_pyarrow_may_nest() -> None:
    schema = pa.schema([pa.field("at", pa.struct([("x", pa.int64())]), nullable=False)])
    assert read([b'{"at":{"x":1,"y":2}}'], schema) == [{"at": {"x": 1}}]
    with pytest.raises(ValueError, match="'at' is null or missing"):
        read([b"{}"], schema)
