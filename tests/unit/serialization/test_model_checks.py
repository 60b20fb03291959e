"""What a model's serde writes it reads again, with all fields, or it refuses the instance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from eosframework.serialization.model_checks import Reader
from eosframework.serialization.serdes import serde_of

REFUSALS = (TypeError, ValueError)


class Color(Enum):
    RED = "red"


class Line(BaseModel):
    sku: str
    pieces: Annotated[int, Field(gt=0)] = 1


class GiftLine(Line):
    wish: str = ""


class CountedLine(Line):
    @property
    def twice(self) -> int:
        return 2 * self.pieces


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str = ""


class Order(BaseModel):
    id: int
    country: str = "DE"
    note: str | None = None
    cents: Annotated[int, Field(gt=0)] = 1
    code: Annotated[str, Field(max_length=3)] = "a"
    state: Literal["open", "paid"] = "open"
    color: Color = Color.RED
    amount: Decimal = Decimal(1)
    rate: float = 1.0
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    took: timedelta = timedelta(0)
    of: UUID = UUID(int=1)
    names: list[str] = []
    maybe: list[str | None] = []
    by: dict[str, int] = {}
    line: Line = Line(sku="a")
    lines: list[Line] = []
    by_line: dict[str, Line | None] = {}
    paid: Annotated[Cash | Card, Field(discriminator="kind")] = Cash()
    either: Line | str | None = None
    before: Order | None = None


class Enriched(Order):
    total: int = 0


class Checked(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if len(name) > 3:
            raise ValueError("too long")
        return name


class Renamed(BaseModel):
    name: str = Field(default="", validation_alias="in", serialization_alias="out")


class Cached(BaseModel):
    name: str
    size: int

    @cached_property
    def half(self) -> int:
        return 3


def with_(field: str, value: Any) -> Order:
    order = Order(id=1)
    setattr(order, field, value)
    return order


def refused(value: Any, declared: type[BaseModel] | None = None) -> str:
    encode = serde_of(declared or type(value)).encode
    assert encode is not None
    with pytest.raises(REFUSALS) as caught:
        encode(value)
    return str(caught.value)


CHANGES: list[tuple[str, Any, str]] = [
    ("country", None, "country of Order is None"),
    ("cents", -5, "greater than 0"),
    ("cents", None, "valid integer"),
    ("code", "abcd", "at most 3"),
    ("state", "lost", "'open' or 'paid'|open"),
    ("amount", Decimal("NaN"), "finite"),
    ("names", [None], "has a None"),
    ("by", {"a": None}, "has a None"),
    ("lines", [Line.model_construct(sku=None)], "sku of Line is None"),
    ("lines", [None], "has a None"),
    ("line", None, "line of Order is None"),
    ("line", Line.model_construct(sku="a", pieces=-1), "greater than 0"),
    ("line", Line.model_construct(), "Line has no sku"),
    ("line", GiftLine(sku="a", wish="w"), "got its subclass GiftLine, of which wish would be lost"),
    ("lines", [GiftLine(sku="a")], "got its subclass GiftLine"),
    ("by_line", {"a": GiftLine(sku="a")}, "got its subclass GiftLine"),
    ("either", GiftLine(sku="a"), "got its subclass GiftLine"),
    ("before", Enriched(id=1), "got its subclass Enriched, of which total would be lost"),
    ("paid", Card.model_construct(kind="cash"), ""),
]


@pytest.mark.parametrize(("field", "value", "message"), CHANGES)
def test_an_instance_that_would_not_be_read_again_is_refused(
    field: str, value: Any, message: str
) -> None:
    assert any(part in refused(with_(field, value)) for part in message.split("|"))
    assert refused(Order.model_construct(**dict(with_("before", with_(field, value)))))


def test_a_subclass_with_more_fields_is_refused_with_both_types_named() -> None:
    message = refused(Enriched(id=1, total=3), Order)
    assert "expected Order, got its subclass Enriched, of which total would be lost" in message
    assert "declare Enriched" in message


def test_a_subclass_without_more_fields_is_written() -> None:
    serde = serde_of(Line)
    assert serde.encode is not None
    assert serde.decode is not None
    assert serde.decode(serde.encode(CountedLine(sku="a"))) == Line(sku="a")


def test_validators_of_the_user_are_asked() -> None:
    value = Checked(name="abc")
    value.name = "abcd"
    assert "its JSON would not be read again" in refused(value)
    assert "too long" in refused(value)


def test_a_field_that_is_read_by_another_name_is_not_lost_in_silence() -> None:
    assert "another alias" in refused(Renamed.model_validate({"in": "x"}))


def test_a_cached_property_does_not_stand_for_a_missing_field() -> None:
    value = Cached.model_construct(name="a")
    assert value.half == 3
    assert "Cached has no size" in refused(value)


@pytest.mark.parametrize(
    ("model", "reads_back"), [(Order, False), (Line, False), (Checked, True), (Cached, False)]
)
def test_only_models_with_code_of_the_user_are_read_back(model: Any, reads_back: bool) -> None:
    adapter = TypeAdapter(model)
    assert Reader(model, adapter.core_schema, adapter.validate_json).reads_back is reads_back


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    at: datetime | None = None
    of: tuple[int, str] = (1, "a")
    tags: frozenset[str] = frozenset()
    by: dict[int, list[Decimal]] = {}


members = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.floats(),
    st.text(max_size=5),
    st.decimals(),
    st.datetimes(timezones=st.sampled_from([UTC])),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from(["open", "paid", "red", Color.RED, "cash"]),
    st.builds(Line.model_construct, sku=st.none() | st.text(), pieces=st.integers(-1, 2)),
    st.builds(GiftLine, sku=st.text(), wish=st.text()),
    st.builds(CountedLine, sku=st.text()),
    st.builds(Card.model_construct, kind=st.sampled_from(["cash", "card", None])),
)
held = st.recursive(
    members,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.frozensets(st.text(), max_size=2)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("model", [Order, Strict, Line, Card, Checked])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_whatever_fields_hold_the_instance_is_read_again_or_refused(model: Any, data: Any) -> None:
    fields = data.draw(st.dictionaries(st.sampled_from([*model.model_fields]), held, max_size=3))
    value = model.model_construct(**{"id": 1, "sku": "a", "name": "b"} | fields)
    serde = serde_of(model)
    assert serde.encode is not None
    assert serde.decode is not None
    try:
        written = serde.encode(value)
    except Exception:
        return
    again = serde.decode(written)
    assert plain(again) == plain(value)


def plain(value: Any) -> Any:
    """Return the data of a value; a subclass without more fields is its base."""
    if isinstance(value, BaseModel):
        return {name: plain(member) for name, member in value}
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(member) for member in value]
    return value
