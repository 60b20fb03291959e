"""Keys go from a command line to the bytes of a store, and come back as they were written."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from eosframework.errors import ConfigurationError
from eosframework.serialization.serdes import (
    BYTES,
    FLOAT,
    INTEGER,
    JSON,
    STRING,
    Serde,
    model_serde,
)
from eosframework.state.query import as_json, key_of, key_text
from eosframework.topology.graph.graph import Store


class Route(BaseModel):
    origin: str
    number: int


def store(key: Serde) -> Store:
    return Store("totals", "a-totals-changelog", key, JSON)


def again(serde: Serde, key: Any) -> bytes:
    return key_of(store(serde), key_text(store(serde), key))


@given(st.text())
def test_texts_are_keys_as_they_are(text: str) -> None:
    assert key_of(store(STRING), text) == text.encode()
    assert again(STRING, text) == text.encode()


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_keys_as_they_are(number: int) -> None:
    assert again(INTEGER, number) == number.to_bytes(8, "big", signed=True)


@given(st.binary())
def test_bytes_that_are_no_text_are_written_in_hexadecimal(key: bytes) -> None:
    try:
        key.decode()
    except UnicodeDecodeError:
        assert key_text(store(BYTES), key) == "0x" + key.hex()
        assert again(BYTES, key) == key


def test_any_key_can_be_named_by_its_bytes() -> None:
    assert key_of(store(INTEGER), "0x0000000000000007") == key_of(store(INTEGER), "7")
    assert key_of(store(STRING), "0x07") == b"0x07"


def test_other_keys_are_json() -> None:
    assert key_of(store(JSON), '{"a": [1, 2]}') == b'{"a":[1,2]}'
    assert key_of(store(model_serde(Route)), '{"number": 7, "origin": "EWR"}') == orjson.dumps(
        {"origin": "EWR", "number": 7}
    )
    assert key_of(store(FLOAT), "1.5") == key_of(store(FLOAT), "1.50")


@pytest.mark.parametrize(
    ("serde", "text"),
    [(INTEGER, "seven"), (INTEGER, str(2**63)), (JSON, "{"), (model_serde(Route), "{}")],
)
def test_what_cannot_be_a_key_is_refused_by_name(serde: Serde, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a key of store 'totals'"):
        key_of(store(serde), text)


def test_the_problems_of_a_model_are_one_line() -> None:
    with pytest.raises(ConfigurationError) as refused:
        key_of(store(model_serde(Route)), '{"origin": 1}')
    assert "origin: Input should be a valid string; number: Field required; write" in str(
        refused.value
    )


def test_values_of_any_kind_become_json() -> None:
    shown = as_json({"model": Route(origin="EWR", number=7), "raw": b"\xff", "text": b"t", 1: {2}})
    assert orjson.loads(shown) == {
        "model": {"origin": "EWR", "number": 7},
        "raw": "0xff",
        "text": "t",
        "1": "{2}",
    }
