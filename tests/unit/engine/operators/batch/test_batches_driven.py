"""Topologies with batch operators, run through the worker's own code, crashing and cut anyhow."""

from __future__ import annotations

import pytest

from eosframework import Topology
from eosframework.testing import TopologyTestDriver, crash_everywhere, cut_everywhere
from tests.unit.engine.operators.batch.functions import SCHEMA, dear, ranked, totals


def counted() -> Topology:
    app = Topology("shop")
    sold = app.stream("sold", key=str, value="json")
    totalled = sold.filter_batch(dear, schema=SCHEMA).map_batch(totals).named("totalled")
    totalled.to("totals")
    there = totalled.filter(lambda value: value is not None)
    by_name = there.group_by(lambda record: record.value["name"], key=str)
    by_name.sum(lambda value: value["total"], store="sums").to("sums", value="json")
    return app


def sell(driver: TopologyTestDriver) -> None:
    for n in range(40):
        value = {"price": n % 17, "count": n, "name": "ab"[n % 2]}
        driver.send("sold", None if n % 9 == 8 else value, key=str(n), timestamp=n)
        if n % 15 == 14:
            driver.run()
    driver.run()


def test_a_crash_at_any_step_and_any_cut_leave_the_same() -> None:
    driver = TopologyTestDriver(counted())
    sell(driver)
    found = [n for n in range(40) if n % 17 > 10 and n % 9 != 8]
    expected = {name: sum(n * (n % 17) for n in found if "ab"[n % 2] == name) for name in "ab"}
    assert driver.state("sums") == expected
    outputs = {record.key: record.value for record in driver.read("totals")}
    assert {key for key, value in outputs.items() if value} == {str(n) for n in found}
    assert crash_everywhere(counted(), sell, partitions=2) > 20
    cut_everywhere(counted(), sell, partitions=2)


def test_a_function_whose_result_depends_on_the_cut_is_found() -> None:
    app = Topology("shop")
    app.stream("sold", value="json").map_batch(ranked, schema=SCHEMA).to("ranks")

    def scenario(driver: TopologyTestDriver) -> None:
        for n in range(5):
            driver.send("sold", {"price": n})
        driver.run()

    driver = TopologyTestDriver(app)
    scenario(driver)
    ranks = [r.value["rank"] for r in driver.read("ranks")]
    assert ranks == [0, 0, 1, 2, 3], "the first record is run alone"
    with pytest.raises(AssertionError, match="in batches of at most 1, topic ranks differs"):
        cut_everywhere(app, scenario)


def test_a_tombstone_goes_past_batch_operators() -> None:
    driver = TopologyTestDriver(counted())
    driver.send("sold", None, key="gone")
    driver.send("sold", {"price": 1, "count": 1, "name": "a"}, key="cheap")
    driver.run()
    assert [(r.key, r.value) for r in driver.read("totals")] == [("gone", None)]
