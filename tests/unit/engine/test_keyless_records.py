"""Records without a key are counted as skipped, by step, where a step needs a key."""

from __future__ import annotations

from eosframework import Topology
from eosframework.engine.failures.failure_handler import LatePlace
from eosframework.testing import TopologyTestDriver


def test_keys_that_group_by_maps_to_none_are_counted_by_step() -> None:
    app = Topology("shop")
    orders = app.stream("orders", key=str, value=dict)
    users = orders.group_by(lambda record: record.value.get("user"), key=str, name="users")
    users.count(store="counts").to("counts", value=int)
    driver = TopologyTestDriver(app)
    for user in ("a", None, "a", None, None):
        driver.send("orders", {"user": user}, key="k", timestamp=1_700_000_000_000)
    driver.run()
    assert [record.value for record in driver.read("counts")] == [1, 2]
    view = driver._worker.view()
    assert view.counts.skipped == 3
    [(place, count)] = view.keyless.items()
    assert (place.topic, count) == ("shop-users-repartition", 3)
    assert "count" in place.step


def test_records_of_a_table_without_a_key_are_counted() -> None:
    app = Topology("shop")
    users = app.table("users", key=str, value=dict)
    orders = app.stream("orders", key=str, value=dict)
    orders.join(users, lambda order, user: user).to("joined", value="json")
    driver = TopologyTestDriver(app)
    driver.send("users", {"name": "x"}, timestamp=1_700_000_000_000)
    driver.run()
    [(place, count)] = driver._worker.view().keyless.items()
    assert (place, count) == (LatePlace(place.step, "users"), 1)
