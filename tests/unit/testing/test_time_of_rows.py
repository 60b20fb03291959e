"""Rows of a table move no time: whatever their times, no record is late because of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import Topology, tumbling
from eosframework.engine.codegen import compiler
from eosframework.testing import TopologyTestDriver
from eosframework.topology.dsl.streams import KeyedStream, Stream

TIMES = st.integers(0, 100_000)
ARRIVALS = st.lists(st.tuples(st.sampled_from(["orders", "customers"]), TIMES), max_size=20)
LAST = 10**9


def same_key(record: Any) -> str:
    return record.value["key"]


def order_of(order: Any, customer: Any) -> Any:
    return order


def counted(keyed: KeyedStream, emit: Any) -> None:
    keyed.window(tumbling("10s"), grace="5s").count(emit=emit).to("out")


def behind_a_repartition_topic(orders: Stream, customers: Any) -> None:
    counted(orders.join(customers, order_of, how="left").group_by(same_key, key=str), "close")


def beside_the_table(orders: Stream, customers: Any) -> None:
    counted(orders.join(customers, order_of, how="left").group_by_key(), "close")


def by_each_record(orders: Stream, customers: Any) -> None:
    counted(orders.join(customers, order_of, how="left").group_by_key(), "each")


def run(declare: Callable[..., None], arrivals: Sequence[tuple[str, int]], every: int) -> Any:
    """Return the results and the number of late records."""
    app = Topology("app")
    orders = app.stream("orders", key=str, value="json")
    declare(orders, app.table("customers", key=str, value="json"))
    driver = TopologyTestDriver(app)
    for number, (topic, time) in enumerate([*arrivals, ("orders", LAST)]):
        driver.send(topic, {"key": "k"}, key="k", timestamp=time)
        if number % every == 0:
            driver.run()
    driver.run()
    late = sum(driver._worker.view().late.values())
    return [(r.key, r.value) for r in driver.read("out")], late


DECLARED = [behind_a_repartition_topic, beside_the_table, by_each_record]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(DECLARED), ARRIVALS, st.integers(1, 4))
def test_windows_of_a_stream_are_the_same_with_rows_and_without(
    declare: Callable[..., None], arrivals: Sequence[tuple[str, int]], every: int
) -> None:
    """One record at a time: several that wait are run by their times, rows among them."""
    alone = [(topic, time) for topic, time in arrivals if topic == "orders"]
    assert run(declare, arrivals, 1) == run(declare, alone, 1)


@pytest.mark.parametrize("declare", DECLARED)
def test_a_row_from_the_future_makes_no_order_late(declare: Callable[..., None]) -> None:
    arrivals = [("orders", 1000), ("customers", 500_000), ("orders", 2000)]
    results, late = run(declare, arrivals, 1)
    assert late == 0
    assert max(value.value for _, value in results) == 2


def test_without_the_rule_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_timeless", lambda _: ())
    arrivals = [("orders", 1000), ("customers", 500_000), ("orders", 2000)]
    assert run(beside_the_table, arrivals, 1)[1] == 1


def test_changes_of_rows_that_are_counted_themselves_move_time() -> None:
    app = Topology("app")
    rows = app.table("customers", key=str, value="json")
    app.stream("orders", key=str, value="json").join(rows, order_of).to("joined")
    rows.group_by_key().window(tumbling("10s"), grace="5s").count(emit="close").to("out")
    driver = TopologyTestDriver(app)
    for time in (1000, 2000, LAST):
        driver.send("customers", {"key": "k"}, key="k", timestamp=time)
    driver.run()
    assert [r.value.value for r in driver.read("out")] == [2]
