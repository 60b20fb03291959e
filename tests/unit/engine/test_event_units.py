"""Event times in seconds are warned of once; real times of long ago are not."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from eosframework import Topology
from eosframework.testing import TopologyTestDriver

NOW_S = 1_700_000_000


@pytest.mark.parametrize(
    ("at", "warnings"),
    [
        (NOW_S, 1),
        (NOW_S + 300 * 86_400, 1),
        (NOW_S // 1000, 1),
        (NOW_S * 1000, 0),
        (NOW_S * 1000 - 5 * 365 * 86_400_000, 0),
        (0, 0),
    ],
)
def test_a_time_that_fits_in_another_unit_is_warned_of_once(at: int, warnings: int) -> None:
    app = Topology("shop")
    orders = app.stream("orders", key=str, value=dict, timestamp=lambda order: order["at"])
    orders.to("copies", value=dict)
    driver = TopologyTestDriver(app)
    with capture_logs() as events:
        for _ in range(3):
            driver.send("orders", {"at": at}, key="k", timestamp=NOW_S * 1000)
        driver.run()
    assert len(driver.read("copies")) == 3
    found: list[Any] = [event for event in events if event["event"] == "event_time_unit"]
    assert len(found) == warnings
    if found:
        assert found[0]["source"] == "orders"
        assert "return milliseconds" in found[0]["fix"]
