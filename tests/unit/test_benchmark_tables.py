"""The works with tables give the final values that `tables` compares outputs with."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks import hops, tables
from benchmarks.contestants.tables_topology import declare
from benchmarks.disciplines import customers
from benchmarks.inputs import DOUBLED
from eosframework.testing import TopologyTestDriver

RECORDS, ORDERS, CUSTOMERS = 100, 20, 30


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ORDERS", ORDERS)
    monkeypatch.setattr(tables, "KEYS", CUSTOMERS)


def driven(work: str) -> TopologyTestDriver:
    driver = TopologyTestDriver(declare({"BENCH_DISCIPLINE": work, "BENCH_EMIT": "each"}))
    if work == "foreign":
        for key, value, _ in islice(customers(CUSTOMERS), CUSTOMERS):
            driver.send("customers", value, key=key, timestamp=1)
    for key, value, *_ in tables.changed_orders(RECORDS):
        driver.send("orders", value, key=key, timestamp=2)
    driver.run()
    return driver


def test_groups_end_with_the_counts_and_sums_of_the_last_orders() -> None:
    driver = driven("groups")
    found = {
        (suffix, record.key.encode()): record.value
        for suffix in ("", tables.SUM)
        for record in driver.read(f"out{suffix}")
    }
    expected = tables.final_groups(RECORDS)
    assert {place: value for place, value in expected.items() if value} == {
        place: value for place, value in found.items() if value
    }
    assert 0 in found.values()


def test_joins_end_with_the_last_orders() -> None:
    found = {("", r.key): r.value[DOUBLED] for r in driven("foreign").read("out")}
    assert found == tables.final_joins(RECORDS)


@pytest.mark.parametrize("work", hops.HOPS)
def test_each_task_of_a_work_has_a_name(work: str) -> None:
    assert len(hops.parts_of(work)) == len(hops.HOPS[work])
