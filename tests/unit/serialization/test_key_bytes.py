"""Equal keys have equal bytes, and different ones different bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from eosframework import Topology
from eosframework.errors import TopologyError
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.serdes import FLOAT, INTEGER, JSON, STRING, Serde, serde_of
from eosframework.testing import TopologyTestDriver

HERE, AGAIN = {"city": "Bonn", "zip": 5}, {"zip": 5, "city": "Bonn"}


class Place(BaseModel):
    model_config = ConfigDict(extra="allow")

    zip: str = ""
    by: dict[str, Any] = {}
    height: float = 0.0


class Tags(BaseModel):
    tags: frozenset[str]


scalars = st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([0.0, -0.0, 1.5])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
)


def turned(value: Any) -> Any:
    """Return an equal value whose objects have their members in the reverse order."""
    if isinstance(value, dict):
        return {name: turned(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [turned(member) for member in value]
    return -value if value == 0 and type(value) is float else value


def plain(value: Any) -> Any:
    """Return a form in which 1, 1.0 and true differ, as they do in JSON."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(member) for member in value]
    return type(value), value


def bytes_of(serde: Serde, key: Any) -> bytes:
    encode = key_encoder(serde)
    assert encode is not None
    return encode(key)


@given(values, values)
@example(HERE, AGAIN)
@example({"a": "-0.0"}, {"a": -0.0})
def test_json_keys_are_equal_if_their_bytes_are(one: Any, other: Any) -> None:
    assert bytes_of(JSON, one) == bytes_of(JSON, turned(one))
    assert (bytes_of(JSON, one) == bytes_of(JSON, other)) == (plain(one) == plain(other))
    assert JSON.decode is not None
    assert JSON.decode(bytes_of(JSON, one)) == one


@given(st.dictionaries(st.text(), values), values, st.sampled_from([0.0, -0.0, 2.5]))
def test_keys_that_are_models_are_equal_if_their_bytes_are(
    by: dict[str, Any], more: Any, height: float
) -> None:
    serde = serde_of(Place)
    one = Place.model_construct(by=by, height=height, more=more)
    other = Place.model_construct(more=turned(more), height=turned(height), by=turned(by))
    assert bytes_of(serde, one) == bytes_of(serde, other)
    assert serde.decode is not None
    assert serde.decode(bytes_of(serde, one)) == one
    assert bytes_of(serde, one) != bytes_of(serde, one.model_copy(update={"zip": "x"}))


@dataclass
class Spot:
    height: float
    by: dict[str, float]


@pytest.mark.parametrize(
    ("of", "key"),
    [
        (dict[str, float], {"a": 1.5, "b": -0.0}),
        (list[dict[str, int]], [{"a": 1, "b": 2}, {}]),
        (tuple[float, ...], (-0.0, 1.5)),
        (Spot, Spot(-0.0, {"a": -0.0, "b": 2.0})),
    ],
)
def test_keys_of_a_type_are_equal_if_their_bytes_are(of: Any, key: Any) -> None:
    serde = serde_of(of)
    other = replace(key, height=0.0, by=turned(key.by)) if isinstance(key, Spot) else turned(key)
    other = tuple(turned(list(key))) if isinstance(key, tuple) else other
    assert bytes_of(serde, key) == bytes_of(serde, other)
    assert serde.decode is not None
    assert serde.decode(bytes_of(serde, key)) == key


@pytest.mark.parametrize(("serde", "key"), [(STRING, "-0.0"), (INTEGER, 7), (FLOAT, 2.5)])
def test_other_keys_are_the_bytes_of_their_serde(serde: Serde, key: Any) -> None:
    assert serde.encode is not None
    assert bytes_of(serde, key) == serde.encode(key)


def test_zero_is_one_key() -> None:
    assert bytes_of(FLOAT, -0.0) == bytes_of(FLOAT, 0.0)


@pytest.mark.parametrize("of", [Tags, frozenset[str], list[set[int]]])
def test_a_key_with_a_set_is_refused(of: Any) -> None:
    with pytest.raises(TopologyError, match=r"cannot be a key: it has a set"):
        key_encoder(serde_of(of))


def test_objects_with_the_same_members_are_one_group_everywhere() -> None:
    app = Topology("shop")
    rows = app.stream("rows", key=str, value=dict)
    places = rows.group_by(lambda record: record.value["at"], key=dict, name="places")
    places.count(store="counts").to("counts", value=int)
    places.deduplicate(within=timedelta(hours=1), store="seen").to("first", value=dict)
    driver = TopologyTestDriver(app)
    for at in (HERE, AGAIN):
        driver.send("rows", {"at": at}, key="a", timestamp=1_700_000_000_000)
    driver.run()
    assert [record.value for record in driver.read("counts")] == [1, 2]
    assert len(driver.read("first")) == 1
