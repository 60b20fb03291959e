"""Integers of any size and the digits of Decimals are kept, or are that record's error."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from eosframework.engine.operators.arrow_conversion import objects_of
from eosframework.serialization.serdes import JSON, WINDOW, Serde, serde_of

ICCID = 89314404000012345671
LARGE = b'{"iccid":89314404000012345671}'


class Payment(BaseModel):
    amount: Annotated[Decimal, Field(ge=-(10**30))]
    rate: float = 1.0
    note: Any = None
    parts: list[Decimal] = []
    by: dict[str, Decimal] = {}
    inside: Payment | None = None


PAYMENT = serde_of(Payment)


def decoded(serde: Serde, data: bytes) -> Any:
    assert serde.decode is not None
    return serde.decode(data)


def encoded(serde: Serde, value: Any) -> bytes:
    assert serde.encode is not None
    return serde.encode(value)


@pytest.mark.parametrize("serde", [JSON, WINDOW], ids=["json", "window"])
def test_a_large_integer_keeps_its_digits(serde: Serde) -> None:
    assert decoded(serde, LARGE) == {"iccid": ICCID}
    assert encoded(serde, {"iccid": ICCID}) == LARGE


def test_two_large_integers_are_two_keys() -> None:
    one, other = decoded(JSON, LARGE), decoded(JSON, LARGE.replace(b"671", b"689"))
    assert encoded(JSON, one["iccid"]) != encoded(JSON, other["iccid"])


def test_columns_get_the_integers_of_the_text() -> None:
    assert objects_of([LARGE]) == [{"iccid": ICCID}]
    assert objects_of([LARGE, b"{}"]) == [{"iccid": ICCID}, {}]


integers = st.integers() | st.integers(-(2**70), 2**70) | st.integers(2**63 - 2, 2**64 + 2)


@given(st.recursive(integers | st.none(), lambda inner: st.lists(inner) | st.tuples(inner, inner)))
@example([2**64, {"a": (1, -(2**63) - 1)}])
def test_integers_of_any_size_are_written_as_they_are(value: Any) -> None:
    assert json.loads(encoded(JSON, {"of": value})) == json.loads(json.dumps({"of": value}))


def test_an_integer_that_no_reader_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="4300"):
        encoded(JSON, [10**5000])
    with pytest.raises(Exception, match="out of range"):
        decoded(JSON, b"1" * 5000)


@pytest.mark.parametrize(
    "text", ["1234567890123456.78", "-0.12345678901234567890", "1e-400", "12.5", "7", "1E+2"]
)
def test_a_decimal_gets_the_digits_of_the_text(text: str) -> None:
    data = f'{{"amount":{text},"rate":0.1,"inside":{{"amount":"{text}","by":{{"a":{text}}}}}}}'
    value = decoded(PAYMENT, data.encode())
    assert value.amount == value.inside.amount == value.inside.by["a"] == Decimal(text)
    assert value.rate == 0.1
    assert decoded(PAYMENT, encoded(PAYMENT, value)) == value


decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**25), max_value=10**25)


@settings(max_examples=200)
@given(decimals, st.floats(-1e300, 1e300), st.lists(decimals, max_size=3))
@example(Decimal("9999999999999999832227840.000000000287840209188"), 0.0, [Decimal(10**25)])
def test_decimals_and_floats_of_one_text_get_what_their_types_say(
    amount: Decimal, rate: float, parts: list[Decimal]
) -> None:
    numbers = ",".join(map(str, parts))
    data = f'{{"amount":{amount},"rate":{rate!r},"note":[{rate!r}],"parts":[{numbers}]}}'
    texts = [str(amount), repr(rate), *map(str, parts)]
    # An integer is read as one, so that no other number can be taken for it.
    read = {Decimal(text) for text in texts if not set(text).isdisjoint(".eE")}
    if len({float(number) for number in read}) < len(read):
        with pytest.raises(ValueError, match="are the same float"):
            decoded(PAYMENT, data.encode())
        return
    value = decoded(PAYMENT, data.encode())
    assert (value.amount, value.rate, value.parts) == (amount, rate, parts)
    assert value.note == [rate]


def test_two_decimals_of_one_float_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"1234567890123456.78 and 1234567890123456.79 are the sam"
    ):
        decoded(PAYMENT, b'{"amount":1234567890123456.78,"parts":[1234567890123456.79]}')
