"""The annotations of functions give the serdes of what follows; what they cannot is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NewType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict

from eosframework import Record, Topology, tumbling
from eosframework.errors import RecordFailed, TopologyError
from eosframework.serialization.serdes import Serde, serde_of
from eosframework.testing import TopologyTestDriver
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.resolve.resolve import resolve

if TYPE_CHECKING:
    from fractions import Fraction


class Order(BaseModel):
    user: str
    cents: int


class Enriched(Order):
    total: Decimal


@dataclass
class Spent:
    orders: int = 0
    total: Decimal = Decimal(0)


class Row(TypedDict):
    name: str
    since: date


class Color(Enum):
    RED = "red"


UserId = NewType("UserId", str)


def by_user(record: Record[str, Order]) -> str:
    return record.value.user


def total(order: Order) -> Enriched:
    return Enriched(**order.model_dump(), total=Decimal(order.cents) / 100)


def euros(order: Order) -> Decimal:
    return Decimal(order.cents) / 100


def no_orders() -> Spent:
    return Spent()


def spend(spent: Spent, order: Order) -> Spent:
    return Spent(spent.orders + 1, spent.total + euros(order))


def halves(order: Order) -> Iterator[Decimal]:
    yield from [euros(order) / 2] * 2


def swapped(record: Record[str, Order]) -> tuple[UserId, date]:
    return UserId(record.value.user), date(2026, 1, 1)


def pairs(record: Record[str, Order]) -> Iterable[Record[str, list[Order]]]:
    yield record.replace(value=[record.value])


def maybe(order: Order) -> Spent | None:
    return Spent(1) if order.cents else None


def both(order: Order, spent: Spent | None) -> dict[str, Decimal]:
    return {order.user: Decimal(0) if spent is None else spent.total}


def unresolved(order: Order) -> Fraction:
    raise NotImplementedError


def opaque(order: Order) -> memoryview:
    raise NotImplementedError


def says_nothing(order: Order):  # type: ignore[no-untyped-def]
    return order


ORDERS = [Order(user="ann", cents=110), Order(user="bob", cents=5), Order(user="ann", cents=40)]


def shop(build: Callable[[Any], Any]) -> Topology:
    app = Topology("shop")
    build(app.stream("orders", key=str, value=Order)).to("out")
    return app


def outputs(build: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    driver = TopologyTestDriver(shop(build))
    for number, order in enumerate(ORDERS):
        driver.send("orders", order, key=str(number), timestamp=number)
    driver.run()
    return [(record.key, record.value) for record in driver.read("out")]


@pytest.mark.parametrize(
    ("build", "last"),
    [
        (lambda s: s.map_values(total), ("2", total(ORDERS[2]))),
        (lambda s: s.map_values(partial(euros)), ("2", Decimal("0.4"))),
        (lambda s: s.map_values(maybe), ("2", Spent(1))),
        (lambda s: s.flat_map_values(halves), ("2", Decimal("0.2"))),
        (lambda s: s.map(swapped), ("ann", date(2026, 1, 1))),
        (lambda s: s.flat_map(pairs), ("2", [ORDERS[2]])),
        (lambda s: s.process(pairs), ("2", [ORDERS[2]])),
        (lambda s: s.group_by(by_user).sum(euros), ("ann", Decimal("1.5"))),
        (lambda s: s.group_by(by_user).min(euros), ("ann", Decimal("0.4"))),
        (lambda s: s.group_by(by_user).aggregate(no_orders, spend), ("ann", Spent(2, euros(
            Order(user="", cents=150))))),
        (lambda s: s.map_values(total).group_by(by_user).sum(euros), ("ann", Decimal("1.5"))),
        (
            lambda s: s.join(s.group_by_key().aggregate(no_orders, spend), both),
            ("2", {"ann": Decimal("0.4")}),
        ),
    ],
)  # fmt: skip
def test_what_a_function_says_that_it_returns_is_what_is_written_and_read(
    build: Callable[[Any], Any], last: tuple[Any, Any]
) -> None:
    assert outputs(build)[-1] == last


def test_a_window_keeps_values_of_the_type_that_its_function_says() -> None:
    driver = TopologyTestDriver(
        shop(lambda s: s.group_by(by_user).window(tumbling("1h")).aggregate(no_orders, spend))
    )
    driver.send("orders", ORDERS[0], key="0", timestamp=0)
    driver.send("orders", ORDERS[2], key="2", timestamp=1)
    driver.run()
    driver.restart()
    assert [*driver.state("orders.aggregate").values()] == [Spent(2, Decimal("1.5"))]


def test_a_serde_with_a_schema_is_kept_for_values_of_its_model() -> None:
    app = Topology("shop")
    source = app.stream(
        "orders",
        key=str,
        value=f"avro(model={__name__}:Order, schema={__name__}:SCHEMA)",
    )

    def same(order: Order) -> Order:
        return order

    source.map_values(same).to("out")
    step: Any
    (step,) = resolve(app.loaded()).sub_topologies[0].sources[0].children
    (sink,) = step.children
    assert sink.value.name.startswith("avro(")


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "user", "type": "string"}, {"name": "cents", "type": "long"}],
}


def problems(build: Callable[[Any], Any]) -> list[str]:
    return [f"{found.rule}: {found.message}" for found in lint(shop(build).loaded())]


def test_a_declaration_that_the_function_contradicts_is_refused_at_its_place() -> None:
    def build(s: Any) -> Any:
        s.map_values(total).to("orders.total", value=Order)
        return s

    (problem,) = problems(build)
    assert "type: " in problem
    assert "test_step_types:total returns tests.unit.topology.test_step_types:Enriched" in problem
    assert "and value is 'tests.unit.topology.test_step_types:Order'" in problem
    app = shop(build).loaded()
    (found,) = lint(app)
    assert found.place.file == __file__


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s.group_by(by_user, key=int).count(), "returns str, and key is 'integer'"),
        (lambda s: s.group_by_key().sum(euros, value=int), "returns decimal:Decimal, and value is"),
        (lambda s: s.map_values(unresolved), "returns 'Fraction', which cannot be resolved: name"),
        (lambda s: s.map_values(opaque), "there is no serde for memoryview"),
    ],
)  # fmt: skip
def test_what_an_annotation_does_not_allow_is_one_message(
    build: Callable[[Any], Any], expected: str
) -> None:
    (problem,) = problems(build)
    assert expected in problem


def test_an_annotation_that_nothing_uses_is_not_looked_at() -> None:
    def build(s: Any) -> Any:
        s.map_values(unresolved).to("stated", value="json")
        return s.map_values(opaque).map_values(total)

    assert problems(build) == []


def test_a_function_without_annotation_changes_nothing() -> None:
    assert outputs(lambda s: s.map_values(says_nothing)) == [
        (str(n), o) for n, o in enumerate(ORDERS)
    ]


def test_a_window_takes_no_other_step_than_an_aggregate() -> None:
    windowed: Any = Topology("a").stream("s", key=str).group_by_key().window(tumbling("1h"))
    with pytest.raises(TopologyError, match=r"test_step_types.py:\d+.*not with join_within"):
        windowed.join_within(None, None)
    with pytest.raises(AttributeError):
        windowed.nothing()


@pytest.mark.parametrize("emit", ["each", "commit"])
def test_a_store_of_json_refuses_what_it_would_give_back_as_another_type(emit: Any) -> None:
    driver = TopologyTestDriver(
        shop(lambda s: s.group_by_key().aggregate(lambda: Spent(), lambda so, _: so, emit=emit))
    )
    driver.send("orders", ORDERS[0], key="0")
    with pytest.raises(RecordFailed, match="Spent; JSON would give it back"):
        driver.run()


TYPES: dict[Any, Any] = {
    each: st.from_type(each)
    for each in (bytes, str, bool, date, UUID, Color, Order, dict[str, int], list[Order], Row)
} | {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    datetime: st.datetimes(timezones=st.just(UTC)),
    timedelta: st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
    Spent: st.builds(Spent, total=st.decimals(allow_nan=False, allow_infinity=False)),
    tuple[str, int]: st.tuples(st.text(), st.integers()),
    Order | None: st.from_type(Order),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    int | str: st.integers(-(10**6), 10**6) | st.text(),
}
"""The types of the table in docs/howto/types.md, with their values."""


@given(st.data(), st.sampled_from([*TYPES]))
def test_a_value_of_a_type_is_read_as_it_was_or_is_refused(data: st.DataObject, kind: Any) -> None:
    serde, value = serde_of(kind), data.draw(TYPES[kind])
    try:
        written = serde.encode(value) if serde.encode else value
    except (TypeError, ValueError):
        with pytest.raises((ValueError, AssertionError)):
            assert TypeAdapter(kind).validate_json(TypeAdapter(kind).dump_json(value)) == value
        return
    read = serde.decode(written) if serde.decode else written
    assert (read, type(read)) == (value, type(value))


@given(st.data(), st.sampled_from([*TYPES]), st.sampled_from([*TYPES]))
def test_a_value_that_is_not_of_a_type_is_refused_or_is_equal_to_one_that_is(
    data: st.DataObject, kind: Any, other: Any
) -> None:
    serde: Serde = serde_of(kind)
    value = data.draw(TYPES[other])
    if serde.encode is None or serde.decode is None:
        return
    try:
        written = serde.encode(value)
    except (TypeError, ValueError, OverflowError):
        return
    assert serde.decode(written) == value


def test_the_serde_of_a_type_is_found_again_by_another_process() -> None:
    serde = pickle.loads(pickle.dumps(serde_of(list[Order])))
    assert serde.decode(serde.encode([ORDERS[0]])) == [ORDERS[0]]
    assert serde == serde_of(list[Order])
