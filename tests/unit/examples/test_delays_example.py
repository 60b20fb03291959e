"""What the example with joins and windows does with each kind of flight."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eosframework.records import Record, WindowResult
from eosframework.serialization.references import find
from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.topology.graph.description import as_mermaid
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

FOLDER = Path(__file__).parents[3] / "examples" / "flights"
DELAYS = str(FOLDER / "delays.yaml")

NO_DELAYS = {"flights": 0, "cancelled": 0, "late": 0, "delay_minutes": 0}
CANCELLED = {"dep_time": None, "arr_time": None, "arr_delay": None}


def at(hour: int, minute: int = 0) -> int:
    return int(datetime(2013, 1, 1, hour, minute, tzinfo=UTC).timestamp()) * 1000


def flight(hour: int, minute: int, number: int, **changes: Any) -> dict[str, Any]:
    return {
        "carrier": "UA",
        "flight": number,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "time_hour": f"2013-01-01T{hour:02}:00:00Z",
        "minute": minute,
        "dep_time": 517,
        "arr_time": 830,
        "arr_delay": 11,
    } | changes


def look_up(driver: TopologyTestDriver) -> None:
    """Fill the tables."""
    driver.send("airlines", {"name": "United"}, key="UA")
    driver.send("airports", {"name": "Houston"}, key="IAH")
    plane = {"manufacturer": "Boeing", "model": "737", "seats": 149, "engine": "jet"}
    driver.send("planes", plane, key="N14228")
    for hour, temperature in ((10, 39), (11, 41)):
        observed = {"time_hour": f"2013-01-01T{hour}:00:00Z", "temp": temperature}
        row = observed | {"wind_speed": 10, "visib": 5, "humid": 59}
        driver.send("weather", row, key="EWR", timestamp=at(hour))


def land(driver: TopologyTestDriver, *flights: dict[str, Any]) -> None:
    for each in flights:
        driver.send("flights.landed", each, key=each["carrier"])
    driver.run()


def weather(temperature: int) -> dict[str, Any]:
    return {"temp": temperature, "wind_speed": 10, "visib": 5}


def test_it_has_no_findings_and_is_the_same_in_python() -> None:
    yaml, python = load_app(DELAYS), load_app(str(FOLDER / "delays.py"))
    assert lint(yaml) == lint(python) == []
    assert yaml.spec.model_dump_json() == python.spec.model_dump_json()


def test_a_flight_is_described_by_all_tables() -> None:
    driver = TopologyTestDriver(DELAYS, partitions=2)
    look_up(driver)
    land(driver, flight(10, 15, 1545))
    (record,) = driver.read("flights.described")
    assert (record.key, record.timestamp) == ("EWR", at(10, 15))
    assert record.value == {
        "flight": "UA1545",
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "scheduled": "2013-01-01T10:00:00Z",
        "delay_minutes": 11,
        "airline": "United",
        "destination": "Houston",
        "plane": {"manufacturer": "Boeing", "model": "737", "seats": 149},
        "weather": weather(39),
    }


@pytest.mark.parametrize(
    ("which", "missing"),
    [
        ({"tailnum": None}, {"tailnum": None, "plane": None}),
        ({"tailnum": "N1"}, {"tailnum": "N1", "plane": None}),
        ({"dest": "SJU"}, {"dest": "SJU", "destination": None}),
        ({"carrier": "XX"}, {"flight": "XX1", "airline": None}),
        ({"origin": "LGA"}, {"origin": "LGA", "weather": None}),
        (CANCELLED, {"delay_minutes": None}),
    ],
)
def test_what_is_not_known_of_a_flight_is_left_open(
    which: dict[str, Any], missing: dict[str, Any]
) -> None:
    driver = TopologyTestDriver(DELAYS, partitions=2)
    look_up(driver)
    land(driver, flight(10, 15, 1), flight(10, 15, 1, **which))
    whole, partly = sorted((r.value for r in driver.read("flights.described")), key=repr)
    if missing.items() <= whole.items():
        whole, partly = partly, whole
    assert partly == whole | missing


@pytest.mark.parametrize(
    ("hour", "minute", "seen"),
    [
        (9, 59, None),
        (10, 0, weather(39)),
        (10, 59, weather(39)),
        (11, 0, weather(41)),
        (13, 59, weather(41)),
        (14, 0, None),
    ],
)
def test_the_weather_is_the_last_one_before_departure_unless_it_is_old(
    hour: int, minute: int, seen: dict[str, Any] | None
) -> None:
    driver = TopologyTestDriver(DELAYS)
    look_up(driver)
    land(driver, flight(20, 0, 1), flight(hour, minute, 2))
    found = {r.value["flight"]: r.value["weather"] for r in driver.read("flights.described")}
    assert found == {"UA1": None, "UA2": seen}


def test_an_hour_goes_out_when_it_is_over_by_six() -> None:
    driver = TopologyTestDriver(DELAYS)
    land(
        driver,
        flight(10, 15, 1),
        flight(10, 59, 2, arr_delay=16),
        flight(16, 59, 3),
        flight(10, 0, 4, **CANCELLED),
        flight(10, 30, 5, carrier="AA", arr_delay=-5),
    )
    assert driver.read("flights.hourly") == []
    land(driver, flight(17, 0, 6), flight(10, 31, 7))
    united = {"flights": 3, "cancelled": 1, "late": 1, "delay_minutes": 27}
    american = {"flights": 1, "cancelled": 0, "late": 0, "delay_minutes": -5}
    hourly = {r.key: r.value for r in driver.read("flights.hourly")}
    assert hourly == {
        "UA": WindowResult(at(10), at(11), united),
        "AA": WindowResult(at(10), at(11), american),
    }
    assert [b'"flight":7' in r.value for r in driver.read("flights.too_late")] == [True]
    assert len(driver.read("delays-hourly-rows")) == 2


def test_a_flight_without_a_known_delay_is_broken_and_not_described() -> None:
    driver = TopologyTestDriver(DELAYS)
    land(driver, flight(10, 15, 1, arr_delay=None))
    (dead,) = driver.read("flights.dead")
    assert b"arrived, but not known when" in (
        dict(dead.headers)["__streams.errors.exception"] or b""
    )
    assert driver.read("flights.described") == []


@pytest.mark.parametrize(("delay", "late"), [(15, 0), (16, 1)])
def test_only_flights_that_arrived_can_be_late(delay: int, late: int) -> None:
    load_app(DELAYS)
    no_delay, add_delay = find("flights:no_delay"), find("flights:add_delay")
    delays = add_delay(no_delay(), flight(10, 0, 1, arr_delay=delay))
    assert delays == NO_DELAYS | {"flights": 1, "late": late, "delay_minutes": delay}
    cancelled = add_delay(no_delay(), flight(10, 0, 1, **CANCELLED))
    assert cancelled == NO_DELAYS | {"flights": 1, "cancelled": 1}


def test_a_row_has_the_mean_of_those_that_arrived() -> None:
    load_app(DELAYS)
    row_of = find("flights:hourly_delays")
    delays = {"flights": 3, "cancelled": 1, "late": 1, "delay_minutes": 27}
    row = row_of(Record("UA", WindowResult(at(10), at(11), delays), 0))
    assert row.model_dump() == {
        "carrier": "UA",
        "hour": datetime(2013, 1, 1, 10, tzinfo=UTC),
        "flights": 3,
        "cancelled": 1,
        "late": 1,
        "mean_delay_minutes": 13.5,
    }
    none_arrived = delays | {"cancelled": 3}
    row = row_of(Record("UA", WindowResult(at(10), at(11), none_arrived), 0))
    assert row.mean_delay_minutes is None


@pytest.mark.parametrize("partitions", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_a_crash_at_any_step_changes_nothing(partitions: int) -> None:
    def scenario(driver: TopologyTestDriver) -> None:
        look_up(driver)
        land(driver, flight(10, 15, 1), flight(11, 0, 2, tailnum=None, arr_delay=30))
        land(driver, flight(17, 0, 3, origin="LGA"), flight(10, 31, 4))
        land(driver, flight(12, 0, 5, arr_delay=None), flight(18, 0, 6, dest="SJU"))

    assert crash_everywhere(DELAYS, scenario, partitions=partitions) > 50


def test_the_picture_in_its_readme_is_that_of_the_topology() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    picture = text.partition("```mermaid\n")[2].partition("\n```")[0]
    assert picture == as_mermaid(resolve(load_app(DELAYS)))
