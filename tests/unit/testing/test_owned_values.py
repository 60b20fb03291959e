"""A step owns its value: what a function does to it, no other step and no store sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict

from eosframework import Topology, hopping
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.operators.folds import owned
from eosframework.testing import TopologyTestDriver
from eosframework.topology.dsl.streams import Stream
from eosframework.topology.resolve.resolve import resolve


class Order(BaseModel):
    cents: int
    seen: list[str] = []


def add_vat(value: Any) -> Any:
    """Add a fifth, in place."""
    if isinstance(value, Order):
        value.cents = value.cents * 12 // 10
    else:
        value["cents"] = value["cents"] * 12 // 10
    return value


def add_vat_of(record: Any) -> Any:
    add_vat(record.value)
    return record.key, record.value


def cents(value: Any) -> int:
    return value.cents if isinstance(value, Order) else value["cents"]


def passes(value: Any) -> bool:
    return bool(add_vat(value))


SIBLINGS: dict[str, Callable[[Stream], Stream]] = {
    "map_values": lambda orders: orders.map_values(add_vat),
    "filter": lambda orders: orders.filter(passes),
    "peek": lambda orders: orders.peek(add_vat),
    "flat_map_values": lambda orders: orders.flat_map_values(lambda value: [add_vat(value)]),
    "map": lambda orders: orders.map(add_vat_of),
    "flat_map": lambda orders: orders.flat_map(lambda record: [add_vat_of(record)]),
    "process": lambda orders: orders.process(lambda record: [add_vat_of(record)]),
    "a chain": lambda orders: orders.filter(lambda _: True).map_values(add_vat),
    "duplicates": lambda orders: (
        orders.group_by_key()
        .deduplicate("1h", by=lambda value: cents(add_vat(value)), store="once")
        .map_values(add_vat)
    ),
}


def values(driver: TopologyTestDriver, topic: str) -> list[int]:
    return [cents(record.value) for record in driver.read(topic)]


@pytest.mark.parametrize("serde", ["json", Order], ids=["json", "model"])
@pytest.mark.parametrize("declare", SIBLINGS.values(), ids=SIBLINGS)
def test_siblings_share_no_value(declare: Callable[[Stream], Stream], serde: Any) -> None:
    app = Topology("shop")
    orders = app.stream("orders", key=str, value=serde)
    declare(orders).to("gross", value=serde)
    orders.to("archive")
    sums = orders.group_by_key().sum(lambda value: cents(add_vat(value)), store="sums")
    sums.to("sums", value=int)
    orders.map_values(add_vat).to("last")
    driver = TopologyTestDriver(app)
    for number in (100, 110):
        driver.send("orders", Order(cents=number) if serde is Order else {"cents": number}, key="a")
        driver.run()
    assert values(driver, "archive") == [100, 110]
    assert values(driver, "last") == [120, 132]
    assert [record.value for record in driver.read("sums")] == [120, 252]


def test_values_that_a_function_returned_are_not_shared_either() -> None:
    app = Topology("shop")
    orders = app.stream("orders", key=str, value="json")
    made = orders.map_values(lambda value: {"cents": value["cents"], "items": [{"n": 1}]})
    made.map_values(lambda value: value["items"].clear() or value).to("emptied")
    made.to("whole")
    driver = TopologyTestDriver(app)
    driver.send("orders", {"cents": 1}, key="a")
    driver.run()
    assert [r.value["items"] for r in driver.read("emptied")] == [[]]
    assert [r.value["items"] for r in driver.read("whole")] == [[{"n": 1}]]


def test_an_initial_aggregate_that_is_one_object_is_that_of_one_key_only() -> None:
    shared: dict[str, Any] = {"orders": []}

    def add(basket: Any, value: Any) -> Any:
        basket["orders"].append(value["cents"])
        return basket

    app = Topology("shop")
    orders = app.stream("orders", key=str, value="json").group_by_key()
    orders.aggregate(lambda: shared, add, store="baskets").to("baskets", value="json")
    driver = TopologyTestDriver(app)
    for key in "ab":
        driver.send("orders", {"cents": 1}, key=key)
    driver.run()
    assert driver.state("baskets") == {"a": {"orders": [1]}, "b": {"orders": [1]}}
    assert shared == {"orders": []}


def test_each_of_several_windows_gets_a_value_of_its_own() -> None:
    def later(sums: Any, value: Any) -> Any:
        value["cents"] += sums["cents"]
        return value

    app = Topology("shop")
    orders = app.stream("orders", key=str, value="json").group_by_key()
    orders.window(hopping("20ms", every="10ms")).reduce(later, store="sums").to("sums")
    driver = TopologyTestDriver(app)
    for number, time in ((1, 105), (2, 112), (4, 117)):
        driver.send("orders", {"cents": number}, key="a", timestamp=time)
    driver.run()
    sums = {start: value["cents"] for (_, start, _), value in driver.state("sums").items()}
    assert sums == {100: 7, 110: 6}


def test_what_a_store_gives_and_takes_is_not_shared() -> None:
    kept: list[Any] = []

    def process(record: Any, context: Any) -> Any:
        store = context.store("seen")
        found = store.get(record.key, {"n": 0})
        found["n"] += 1
        store.put(record.key, found)
        found["n"] = -1
        kept.append(store.get(record.key))
        kept[-1]["n"] = -2

    app = Topology("shop")
    app.stream("orders", key=str, value="json").process(
        process, stores={"seen": "json"}, name="count"
    ).to("none", value="json")
    driver = TopologyTestDriver(app)
    for _ in range(3):
        driver.send("orders", {}, key="a")
    driver.run()
    assert driver.state("count.seen") == {"a": {"n": 3}}


def test_rows_that_a_join_gets_are_not_shared() -> None:
    def join(order: Any, row: Any) -> Any:
        row["visits"] += 1
        return row

    app = Topology("shop")
    customers = app.table("customers", key=str, value="json")
    orders = app.stream("orders", key=str, value="json")
    orders.join(customers, join).to("joined")
    orders.join(customers, join).to("again")
    driver = TopologyTestDriver(app)
    driver.send("customers", {"visits": 0}, key="a", timestamp=1)
    driver.run()
    for _ in range(2):
        driver.send("orders", {}, key="a", timestamp=2)
        driver.run()
    for topic in ("joined", "again"):
        assert [record.value for record in driver.read(topic)] == 2 * [{"visits": 1}]
    assert driver.state("customers") == {"a": {"visits": 0}}


def test_a_chain_copies_nothing_and_the_last_sibling_has_the_original() -> None:
    def text(fork: bool) -> str:
        app = Topology("shop")
        orders = app.stream("orders", key=str, value="json")
        made = orders.filter(lambda _: True).map_values(dict)
        if fork:
            made.map_values(dict).to("one")
        made.map_values(dict).to("two")
        part = compile_part(resolve(app.loaded()).sub_topologies[0])
        return part.sources["orders"].text

    assert "owned(" not in text(fork=False)
    assert text(fork=True).count("owned(") == 1


class Point(NamedTuple):
    x: int
    parts: Any = ()


@dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    parts: Any = ()


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)
    x: int
    parts: Any = ()


@pytest.mark.parametrize("kind", [Point, Frozen, FrozenModel])
def test_frozen_values_are_copied_only_for_what_can_be_changed_in_them(kind: Any) -> None:
    for value in (kind(x=1), kind(x=1, parts=(kind(x=2), "b", None))):
        assert owned(value) is value
    value = kind(x=1, parts=({"a": 1},))
    copied = owned(value)
    assert copied == value
    copied.parts[0]["a"] = 2
    assert value.parts[0]["a"] == 1


def test_values_that_pickle_does_not_know_are_copied() -> None:
    class Local:
        n = 1

    copied = owned({"a": [Local()]})
    copied["a"][0].n = 2
    assert Local.n == 1
    assert isinstance(copied["a"][0], Local)
