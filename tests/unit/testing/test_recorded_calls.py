"""Calls that a run of the test driver recorded are replayed without their service (RL1 to RL3)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from eosframework import Topology, dead_letter
from eosframework.errors import ConfigurationError, RecordFailed, RunError
from eosframework.testing import TopologyTestDriver

pytestmark = pytest.mark.enable_socket  # An event loop has a pair of its own.


@dataclass
class Price:
    cents: Decimal


class Service:
    """A service that can be gone, and a client that can be opened only while it is there."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_there = True

    async def client(self) -> str:
        assert self.is_there, "opened without a service"
        return "client"

    async def price(self, value: dict[str, Any], client: str) -> Price:
        assert self.is_there, "called without a service"
        self.calls += 1
        if value["item"] == "ghost":
            raise LookupError("no such item")
        return Price(Decimal(f"{value['n']}.{self.calls}"))


def topology(service: Service, policy: Any = "fail") -> Topology:
    app = Topology("priced")
    orders = app.stream("orders", key=str, value="json")
    priced = orders.map_async(service.price, resources={"client": service.client})
    priced.map_values(text).on_error(policy).to("priced", value="json")
    return app


def text(price: Price) -> str:
    return str(price.cents)


def outputs(driver: TopologyTestDriver, items: str = "chair table chair") -> list[Any]:
    with driver:
        for n, item in enumerate(items.split()):
            driver.send("orders", {"item": item, "n": n % 2}, key="a")
        driver.run()
    return [record.value for record in driver.read("priced")]


def test_a_replay_has_the_outputs_of_the_recording_without_the_service(tmp_path: Path) -> None:
    service, file = Service(), tmp_path / "calls.json"
    expected = outputs(TopologyTestDriver(topology(service), record=file))
    assert expected == ["0.1", "1.2", "0.3"]
    service.is_there = False
    assert outputs(TopologyTestDriver(topology(service), replay=file)) == expected
    with pytest.raises(RunError, match="opened without a service"):
        outputs(TopologyTestDriver(topology(service)))


def test_a_crash_calls_again_and_gets_the_last_result_again(tmp_path: Path) -> None:
    service, file = Service(), tmp_path / "calls.json"
    outputs(TopologyTestDriver(topology(service), record=file), "chair")
    driver = TopologyTestDriver(topology(service), replay=file)
    driver.crash_at(1)
    assert outputs(driver, "chair") == ["0.1"]
    assert driver.crashed


def test_an_error_is_replayed_as_an_error(tmp_path: Path) -> None:
    service, file = Service(), tmp_path / "calls.json"
    policy = dead_letter("dead")
    recording = TopologyTestDriver(topology(service, policy), record=file)
    assert outputs(recording, "ghost chair") == ["1.2"]
    driver = TopologyTestDriver(topology(service, policy), replay=file)
    assert outputs(driver, "ghost chair") == ["1.2"]
    [letter] = driver.read("dead")
    assert "LookupError: no such item" in str(letter.headers)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_call_that_was_not_recorded_is_named_whatever_on_error_says(
    tmp_path: Path, policy: str
) -> None:
    service, file = Service(), tmp_path / "calls.json"
    outputs(TopologyTestDriver(topology(service, policy), record=file), "chair")
    with pytest.raises((ConfigurationError, RecordFailed), match=r"record it again"):
        outputs(TopologyTestDriver(topology(service, policy), replay=file), "sofa")


def test_a_result_that_a_recording_would_change_is_refused(tmp_path: Path) -> None:
    async def shape(value: Any):  # type: ignore[no-untyped-def]
        return Price(Decimal(1))

    app = Topology("app")
    app.stream("orders", key=str, value="json").map_async(shape).map_values(text).to("priced")
    with pytest.raises(ConfigurationError, match="annotate the function's result"):
        outputs(TopologyTestDriver(app, record=tmp_path / "calls.json"), "chair")


def test_a_missing_or_damaged_recording_is_named(tmp_path: Path) -> None:
    app = topology(Service())
    with pytest.raises(ConfigurationError, match="there is no recording"):
        TopologyTestDriver(app, replay=tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="is no recording of calls"):
        TopologyTestDriver(app, replay=tmp_path / "bad.json")
    with pytest.raises(ConfigurationError, match="exclude each other"):
        TopologyTestDriver(app, record="a", replay="b")
