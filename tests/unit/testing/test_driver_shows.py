"""The driver shows rows of tables and stores of every kind, decoded as the command line does."""

from __future__ import annotations

import pydoc
from typing import Any

import pytest
from pydantic import BaseModel

import eosframework.testing
from eosframework import Topology
from eosframework.errors import ConfigurationError, RecordFailed
from eosframework.records import Record
from eosframework.testing import TopologyTestDriver


class Order(BaseModel):
    id: int
    amount: float


def both(left: Any, right: Any) -> Any:
    return [left, right]


def lines(record: Record) -> list[dict[str, Any]]:
    return [{"order": record.key, "line": number} for number in range(record.value["lines"])]


def tables() -> Topology:
    app = Topology("shop")
    orders = app.stream("orders", key=str, value=dict)
    orders.to_table("lines", row=lines)
    orders.filter(is_large).to_table("orders", mode="upsert_delete", keys="id")
    return app


def is_large(order: dict[str, Any] | None) -> bool:
    return order is None or order["amount"] > 100


def send(driver: TopologyTestDriver, number: int, amount: float, count: int = 0) -> None:
    order = {"id": number, "amount": amount, "lines": count}
    driver.send("orders", order, key=str(number))


def test_rows_are_those_that_a_table_writer_would_write() -> None:
    driver = TopologyTestDriver(tables(), partitions=2)
    send(driver, 1, 150, count=2)
    send(driver, 2, 50, count=1)
    send(driver, 1, 250)
    assert driver.rows("orders") == []
    driver.run()
    found = sorted((row["order"], row["line"]) for row in driver.rows("lines"))
    assert found == [("1", 0), ("1", 1), ("2", 0)]
    assert driver.rows("orders") == [{"id": 1, "amount": 250, "lines": 0}]
    assert driver.rows("orders") == driver.rows("orders")


def test_a_null_value_deletes_the_row_of_its_key() -> None:
    app = Topology("shop")
    app.stream("orders", key=int, value=Order).to_table("orders", mode="upsert_delete", keys="id")
    driver = TopologyTestDriver(app)
    for number in (1, 2):
        driver.send("orders", Order(id=number, amount=3), key=number)
    driver.send("orders", None, key=1)
    driver.run()
    assert driver.rows("orders") == [{"id": 2, "amount": 3.0}]


def test_a_table_that_nothing_writes_is_refused() -> None:
    driver = TopologyTestDriver(tables())
    with pytest.raises(ConfigurationError, match=r"no table 'order'.*'orders'"):
        driver.rows("order")


def test_a_record_that_gives_no_row_fails_as_in_a_table_writer() -> None:
    app = Topology("shop")
    app.stream("orders", key=str, value=dict).to_table("orders")
    driver = TopologyTestDriver(app)
    driver.send("orders", b"[1]", key="a")
    driver.run()
    with pytest.raises(RecordFailed, match="expected a row as a map"):
        driver.rows("orders")


def test_a_join_shows_the_records_that_wait() -> None:
    app = Topology("shop")
    left = app.stream("left", key=str, value=dict)
    right = app.stream("right", key=str, value=dict)
    left.join_within(right, both, "10m", store="waiting").to("out")
    driver = TopologyTestDriver(app)
    driver.send("left", {"n": 1}, key="a", timestamp=1000)
    driver.send("right", {"n": 2}, key="b", timestamp=1000)
    driver.run()
    assert driver.state("waiting") == {
        "a": [{"side": "left", "value": {"n": 1}}],
        "b": [{"side": "right", "value": {"n": 2}}],
    }


def test_a_table_with_history_shows_its_current_rows() -> None:
    app = Topology("shop")
    rates = app.table("rates", history="1h", key=str, value=dict)
    app.stream("orders", key=str, value=dict).join(rates, both).to("out")
    driver = TopologyTestDriver(app)
    for time, rate in ((1000, 3), (2000, 4)):
        driver.send("rates", {"rate": rate}, key="eur", timestamp=time)
    driver.run()
    assert driver.state("rates") == {"eur": {"rate": 4}}


def test_help_and_dir_show_the_public_names() -> None:
    assert {*eosframework.testing.__all__} <= {*dir(eosframework.testing)}
    text = pydoc.plain(pydoc.render_doc(TopologyTestDriver))
    for method in ("send", "run", "advance", "read", "rows", "state", "restart", "crash_at"):
        assert f" {method}(" in text
