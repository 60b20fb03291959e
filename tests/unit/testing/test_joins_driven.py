"""Joins through the worker's own cycle: several tasks, topics on the way, crashes at every step."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from eosframework import Topology
from eosframework.testing import TopologyTestDriver, crash_everywhere


def both(left: Any, right: Any) -> list[Any]:
    return [left, right]


def customer(record: Any) -> str:
    return record.value["customer"]


def shop() -> Topology:
    app = Topology("shop")
    orders = app.stream("orders", key=str, value="json")
    payments = app.stream("payments", key=str, value="json")
    tiers = app.table("tiers", key=str, value="json", history="1h")
    names = app.global_table("names", key=str, value="json")
    orders.group_by(customer, key=str).join(tiers, both, how="left").join(
        names, both, key=lambda record: record.value[0]["product"], how="left"
    ).named("priced").to("priced")
    orders.join_within(payments, both, "10s", how="outer", grace="1s").named("paid").to("paid")
    tiers.map_values(str).filter(lambda tier: tier != "none").named("known").to("known")
    return app


def scenario(driver: TopologyTestDriver) -> None:
    driver.send("names", "pen", key="p1")
    for second in range(4):
        at = second * 4000
        driver.send("tiers", ["gold", "none", None][second % 3], key=f"c{second % 2}", timestamp=at)
        order = {"customer": f"c{second % 2}", "product": f"p{second % 2}"}
        driver.send("orders", order, key=f"o{second}", timestamp=at + 1000)
        if second % 2:
            driver.send("payments", second, key=f"o{second}", timestamp=at + 2000 - 1500 * second)
        driver.run()
        driver.advance(timedelta(seconds=1))
    driver.send("orders", {"customer": "c9", "product": "p9"}, key="o0", timestamp=100_000)
    driver.run()


@pytest.mark.parametrize("partitions", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_a_crash_at_any_step_changes_no_result_of_a_join(partitions: int) -> None:
    assert crash_everywhere(shop(), scenario, partitions=partitions) > 30


def test_records_meet_across_topics_on_the_way() -> None:
    driver = TopologyTestDriver(shop(), partitions=3)
    scenario(driver)
    priced = {(r.value[0][0]["product"], r.value[1]) for r in driver.read("priced")}
    assert priced == {("p0", None), ("p1", "pen"), ("p9", None)}
    paid = [str(record.value) for record in driver.read("paid")]
    assert 3 <= len(set(paid)) == len(paid)


def test_a_task_that_only_looks_into_a_global_table_needs_no_store() -> None:
    app = Topology("app")
    names = app.global_table("names", key=str, value="json")
    app.stream("orders", key=str, value="json").join(names, both).to("out")
    driver = TopologyTestDriver(app, partitions=2)
    driver.send("names", "pen", key="o1")
    driver.send("orders", 1, key="o1")
    driver.run()
    driver.send("names", "pencil", key="o1")
    driver.send("orders", 2, key="o1")
    driver.send("orders", 2, key="o2")
    driver.run()
    assert [record.value for record in driver.read("out")] == [[1, "pen"], [2, "pencil"]]


def test_a_record_meets_the_row_of_its_own_time_whatever_the_topics_are_called() -> None:
    app = Topology("app")
    weather = app.table("z.weather", key=str, value="json", history="1h")
    app.stream("a.flights", key=str, value="json").join(weather, both).to("out")
    driver = TopologyTestDriver(app)
    for at in (1000, 2000):
        driver.send("a.flights", at, key="EWR", timestamp=at)
        driver.send("z.weather", f"of {at}", key="EWR", timestamp=at)
    driver.run()
    assert [record.value for record in driver.read("out")] == [
        [1000, "of 1000"],
        [2000, "of 2000"],
    ]
