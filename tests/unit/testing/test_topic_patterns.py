"""The driver reads any topic that a source's pattern matches, from the first record sent to it."""

from __future__ import annotations

import pytest

from eosframework import Record, Topology
from eosframework.errors import ConfigurationError
from eosframework.testing import TopologyTestDriver


def test_a_topic_that_matches_is_read_once_a_record_is_sent_to_it() -> None:
    app = Topology("shop")
    orders = app.stream(pattern=r"orders\..*", name="orders", key=str, value=dict)
    orders.map(lambda r: Record(r.key, {"of": r.topic, **r.value}, r.timestamp)).to("all_orders")
    orders.group_by(lambda r: str(r.value["item"]), partitions=2).count().to("counts")
    with TopologyTestDriver(app, partitions={"orders.eu": 2, "orders.us": 3}) as driver:
        driver.run()
        driver.send("orders.eu", {"item": 1}, key="a")
        driver.run()
        driver.send("orders.us", {"item": 1}, key="a")
        driver.send("orders.eu", {"item": 2}, key="b")
        driver.run()
        found = [(r.value["of"], r.value["item"]) for r in driver.read("all_orders")]
        assert sorted(found) == [("orders.eu", 1), ("orders.eu", 2), ("orders.us", 1)]
        assert [r.value for r in driver.read("counts") if r.key == "1"] == [1, 2]
        assert driver.tasks["orders.orders.us"] == 3
        with pytest.raises(ConfigurationError, match="no source reads topic 'other'"):
            driver.send("other", {})
