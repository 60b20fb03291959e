"""NaN and infinities are found wherever they are in a value, whichever way it is searched."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from eosframework.serialization import strict_json
from eosframework.serialization.strict_json import has_infinite, infinite

FLOATS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf])
TEXTS = st.text(max_size=12) | st.sampled_from(["null", "g" * 9, "g\x00\x00\x00\x00\x00\x00ð\x7f"])
SCALARS = FLOATS | TEXTS | st.integers() | st.booleans() | st.none() | st.binary(max_size=9)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.builds(lambda member: Holder(member=member), inner)
    ),
)


class Holder(BaseModel):
    member: Any = None


@given(VALUES)
def test_the_fast_search_finds_what_the_slow_one_finds(value: Any) -> None:
    assert has_infinite(value) == (next(infinite(value), None) is not None)


@pytest.mark.parametrize("number", [math.nan, -math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda n: {"a": [n, None]}, lambda n: [[1, {"b": n}]]])
def test_nested_numbers_are_found_without_a_walk(wrap: Any, number: float) -> None:
    assert not strict_json._is_finite(wrap(number))
    assert strict_json._is_finite(wrap(1.5))


@given(st.binary(min_size=6, max_size=6), st.integers(0xF0, 0xFF), st.sampled_from([0x7F, 0xFF]))
def test_every_nan_is_found(low: bytes, middle: int, high: int) -> None:
    (number,) = struct.unpack("<d", low + bytes([middle, high]))
    assert not math.isfinite(number)
    assert not strict_json._is_finite({"a": [number]})


def test_a_nested_value_of_plain_types_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(_: Any) -> Any:
        raise AssertionError("it was walked")

    monkeypatch.setattr(strict_json, "infinite", walk)
    assert strict_json.write({"lines": [{"price": 1.5, "note": None}]})
    assert not has_infinite(Holder(member={"lines": [{"price": 1.5, "note": None}]}))


LONG_AGO = datetime(1890, 1, 1, 12, tzinfo=timezone(timedelta(hours=-4, minutes=-56, seconds=-2)))


@given(st.datetimes(timezones=st.none() | st.timezones()))
@example(LONG_AGO)
def test_a_time_of_any_zone_is_written_as_the_same_moment(moment: datetime) -> None:
    try:
        [text] = orjson.loads(strict_json.write([moment]))
    except OverflowError:
        assert moment.year in (1, 9999)
        return
    found = datetime.fromisoformat(text)
    assert (found - moment.astimezone(UTC) if moment.tzinfo else found - moment) == timedelta(0)
    seconds = (found.utcoffset() or timedelta(0)) % timedelta(minutes=1)
    assert seconds == timedelta(0), "RFC 3339 has no offset with seconds"
