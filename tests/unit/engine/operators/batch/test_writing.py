"""Rows become JSON as the JSON serde writes it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.engine.operators.arrow_conversion import json_rows, refuse_unwritable
from eosframework.errors import RunError

COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float64": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text()),
    'a %b"\n': (pa.string(), st.text()),
    "terms": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", 'b"'])),
    "list": (pa.list_(pa.string()), st.lists(st.text(), max_size=3)),
    "struct": (pa.struct([("x", pa.int64())]), st.fixed_dictionaries({"x": st.integers(0, 9)})),
    "time": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
    "nothing": (pa.null(), st.none()),
}
tables = st.lists(
    st.fixed_dictionaries({name: st.none() | given_ for name, (_, given_) in COLUMNS.items()}),
    min_size=1,
    max_size=8,
)
full_tables = st.lists(
    st.fixed_dictionaries({name: given_ for name, (_, given_) in COLUMNS.items()}),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40, deadline=None)
@given(tables | full_tables, st.integers(0, 3))
def test_rows_are_written_as_the_json_serde_writes_them(
    rows: list[dict[str, Any]], skipped: int
) -> None:
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
    batch = pa.RecordBatch.from_pylist(rows, schema)
    refuse_unwritable(batch, "it")
    assert json_rows(batch) == [orjson.dumps({n: row[n] for n in COLUMNS}) for row in rows]
    part = batch.slice(min(skipped, len(rows) - 1), 1)
    assert json_rows(part) == [orjson.dumps(row) for row in part.to_pylist()]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.list_(pa.float64())])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinities_are_refused_as_by_the_json_serde(kind: Any, number: float) -> None:
    values = [[1.5], [number]] if pa.types.is_list(kind) else [1.5, None, number]
    batch = pa.record_batch([pa.array(values, kind)], names=["x"])
    with pytest.raises(ValueError, match="JSON has no number for"):
        json_rows(batch)
    assert json_rows(batch.slice(0, 1)) in ([b'{"x":1.5}'], [b'{"x":[1.5]}'])


def test_key_and_time_are_no_fields() -> None:
    batch = pa.record_batch({"_key": ["k"], "n": [1], "_timestamp": [5]})
    assert json_rows(batch) == [b'{"n":1}']
    assert json_rows(batch.select(["_key"])) == [b"{}"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal("1.5")]),
        pa.array([b"x"]),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.timestamp("ns")),
        pa.array([[b"x"]]),
        pa.array([{"x": b"y"}]),
    ],
)
def test_a_column_without_a_form_in_json_is_named(column: Any) -> None:
    with pytest.raises(RunError, match=r"it gives column 'odd' of type .* cast it"):
        refuse_unwritable(pa.record_batch([column], names=["odd"]), "it")


def test_a_column_that_is_there_twice_is_named() -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([2])], names=["n", "n"])
    with pytest.raises(RunError, match="column 'n' twice"):
        refuse_unwritable(batch, "it")
