from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import DecodeError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eosframework.errors import TopologyError
from eosframework.records import WindowResult
from eosframework.serialization.serdes import (
    BYTES,
    CHECKED_BYTES,
    FLOAT,
    INTEGER,
    JSON,
    STRING,
    WINDOW,
    Serde,
    serde_of,
)

MINE = Serde("mine", str.encode, bytes.decode)
NOT_A_MODEL = 5


class Flight(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    carrier: str
    delay: float | None = Field(default=None, alias="arr_delay")


def _round_trip(serde: Serde, value: Any) -> Any:
    assert serde.encode is not None
    assert serde.decode is not None
    return serde.decode(serde.encode(value))


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_round_trips_as_javas_long(value: int) -> None:
    assert _round_trip(INTEGER, value) == value
    assert INTEGER.encode is not None
    assert INTEGER.encode(value) == value.to_bytes(8, "big", signed=True)


@given(st.floats(allow_nan=False))
def test_a_float_round_trips_as_javas_double(value: float) -> None:
    assert _round_trip(FLOAT, value) == value
    assert FLOAT.encode is not None
    assert FLOAT.encode(value) == struct.pack(">d", value)


def test_nan_stays_nan() -> None:
    assert math.isnan(_round_trip(FLOAT, math.nan))


@given(st.text())
def test_a_string_round_trips(value: str) -> None:
    assert _round_trip(STRING, value) == value


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_json_round_trips(value: Any) -> None:
    assert _round_trip(JSON, value) == value


@given(st.builds(Flight, carrier=st.text(), delay=st.none() | st.floats(-1e9, 1e9)))
def test_a_model_round_trips_with_its_aliases(flight: Flight) -> None:
    assert _round_trip(serde_of(Flight), flight) == flight


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (STRING, 5, "expected str, got int: 5"),
        (INTEGER, "5", "expected int, got str: '5'"),
        (INTEGER, True, "expected int, got bool: True"),
        (FLOAT, "x", "expected float, got str: 'x'"),
        (CHECKED_BYTES, "x", "expected bytes, got str: 'x'"),
        (serde_of(Flight), {"carrier": "UA"}, "expected Flight, got dict: {'carrier': 'UA'}"),
        (JSON, object(), "not JSON serializable: object"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(
    serde: Serde, value: Any, message: str
) -> None:
    assert serde.encode is not None
    with pytest.raises(TypeError, match=message):
        serde.encode(value)


def test_an_integer_that_does_not_fit_is_refused() -> None:
    assert INTEGER.encode is not None
    with pytest.raises(OverflowError, match="9223372036854775808 does not fit"):
        INTEGER.encode(2**63)


@pytest.mark.parametrize(
    ("serde", "data", "error"),
    [
        (STRING, b"\xff", UnicodeDecodeError),
        (INTEGER, b"\x00" * 7, struct.error),
        (INTEGER, b"\x00" * 9, struct.error),
        (FLOAT, b"", struct.error),
        (JSON, b'{"a": 1', DecodeError),
        (JSON, b"NaN", DecodeError),
        (serde_of(Flight), b'{"arr_delay": 3}', ValidationError),
        (serde_of(Flight), b"{}x", ValidationError),
    ],
)
def test_bytes_that_do_not_decode_raise(serde: Serde, data: bytes, error: type[Exception]) -> None:
    assert serde.decode is not None
    with pytest.raises(error):
        serde.decode(data)


@pytest.mark.parametrize(
    ("wanted", "serde"),
    [
        (bytes, BYTES),
        ("bytes", BYTES),
        (str, STRING),
        ("string", STRING),
        (int, INTEGER),
        ("integer", INTEGER),
        (float, FLOAT),
        ("float", FLOAT),
        (dict, JSON),
        (list, JSON),
        (dict[str, Any], JSON),
        ("json", JSON),
        (f"{__name__}:Flight", serde_of(Flight)),
        (f"{__name__}:MINE", MINE),
        (MINE, MINE),
    ],
)
def test_a_serde_goes_by_type_or_by_name(wanted: Any, serde: Serde) -> None:
    assert serde_of(wanted) is serde


def test_a_models_serde_is_named_so_that_it_can_be_found_again() -> None:
    assert serde_of(serde_of(Flight).name) is serde_of(Flight)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("strin", "no serde 'strin'; .*did you mean 'string'"),
        (memoryview, "no serde for memoryview: .*; use bytes, str, int"),
        (f"{__name__}:NOT_A_MODEL", "is a int; expected a type or a Serde"),
        (f"{__name__}:Fligth", "has no attribute 'Fligth'; did you mean 'Flight'"),
    ],
)
def test_an_unknown_serde_is_refused_with_those_there_are(wanted: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        serde_of(wanted)


@given(st.integers(-(2**40), 2**53), st.integers(-(2**40), 2**53), json_values)
def test_a_windows_result_round_trips_as_an_object(start: int, end: int, value: Any) -> None:
    result = WindowResult(start, end, value)
    assert _round_trip(WINDOW, result) == result
    assert WINDOW.encode is not None
    assert JSON.decode is not None
    assert JSON.decode(WINDOW.encode(result)) == {"start": start, "end": end, "value": value}


def test_what_steps_make_of_a_windows_result_is_written_as_json() -> None:
    assert _round_trip(WINDOW, {"of": 1}) == {"of": 1}
    result = WindowResult(1, 2, Flight(carrier="AA"))
    expected = {"carrier": "AA", "arr_delay": None}
    assert _round_trip(WINDOW, result) == WindowResult(1, 2, expected)
