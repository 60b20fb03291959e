"""Functions with stores and timers, run through the worker's own code with crashes everywhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from eosframework import Topology
from eosframework.errors import RecordFailed, TopologyError
from eosframework.testing import TopologyTestDriver, crash_everywhere

SILENCE = 100


def hear(record: Any, context: Any) -> Any:
    """Count a key's records, and set its timer anew with each."""
    store = context.store("heard")
    seen = store.get(record.key, {"n": 0, "until": None})
    if seen["until"] is not None:
        context.cancel_timer(seen["until"])
    until = record.timestamp + SILENCE
    context.set_timer(until)
    store.put(record.key, {"n": seen["n"] + 1, "until": until})
    if record.value == "boom":
        raise ValueError("boom")
    return None


def silent(key: str, at: int, context: Any) -> Any:
    heard = context.store("heard").get(key)
    context.store("heard").delete(key)
    return [(key, {"records": heard["n"], "at": at})]


def visits() -> Topology:
    app = Topology("visits")
    heard = app.stream("clicks", key=str, value=str)
    ended = heard.process(hear, stores={"heard": "json"}, on_timer=silent).named("ended")
    ended.on_error("skip").to("visits", value="json")
    return app


def click(driver: TopologyTestDriver, *times: int, key: str = "a", value: str = "x") -> None:
    for time in times:
        driver.send("clicks", value, key=key, timestamp=time)


def test_a_timer_fires_once_before_the_record_that_moves_the_time_there() -> None:
    driver = TopologyTestDriver(visits())
    click(driver, 10, 20, 30)
    click(driver, 129, key="b")
    driver.run()
    assert driver.read("visits") == []
    click(driver, 130, key="b")
    driver.run()
    [ended] = driver.read("visits")
    assert (ended.key, ended.value, ended.timestamp) == ("a", {"records": 3, "at": 130}, 130)
    assert driver.state("ended.heard") == {"b": {"n": 2, "until": 230}}


def test_what_a_failed_record_kept_and_set_is_taken_back() -> None:
    driver = TopologyTestDriver(visits())
    click(driver, 10)
    click(driver, 50, value="boom")
    click(driver, 110, key="b")
    driver.run()
    assert [(r.key, r.value) for r in driver.read("visits")] == [("a", {"records": 1, "at": 110})]


@pytest.mark.parametrize("keep_stores", [True, False])
def test_timers_outlast_the_worker(keep_stores: bool) -> None:
    driver = TopologyTestDriver(visits(), partitions=2)
    click(driver, 10)
    driver.run()
    driver.restart(keep_stores=keep_stores)
    click(driver, 500)
    driver.run()
    [ended] = driver.read("visits")
    assert (ended.value, ended.timestamp) == ({"records": 1, "at": 110}, 110)
    assert driver.state("ended.heard") == {"a": {"n": 1, "until": 600}}


def test_a_crash_at_any_step_leaves_no_trace_in_stores_and_timers() -> None:
    def scenario(driver: TopologyTestDriver) -> None:
        for turn in range(4):
            click(driver, turn * 70, turn * 70 + 5)
            click(driver, turn * 70 + 7, key="b", value="boom" if turn == 2 else "x")
            driver.run()
            driver.advance(timedelta(seconds=1))

    assert crash_everywhere(visits(), scenario) > 20


def test_stores_are_declared_in_yaml_as_well(tmp_path: Any) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(
        """
application: visits
sources: {clicks: {topic: clicks, key: string, value: string}}
streams:
  ended:
    from: clicks
    steps:
      - process:
          call: tests.unit.testing.test_process:hear
          stores: {heard: {value: json}}
          on_timer: tests.unit.testing.test_process:silent
    to: {topic: visits, value: json}
"""
    )
    driver = TopologyTestDriver(str(file))
    click(driver, 10, 200)
    driver.run()
    assert [r.value for r in driver.read("visits")] == [{"records": 1, "at": 110}]
    assert driver.state("ended.heard") == {"a": {"n": 1, "until": 300}}


def test_by_arrival_a_record_may_put_its_timer_off() -> None:
    app = Topology("visits")
    clicks = app.stream("clicks", key=str, value=str).group_by_key()
    ended = clicks.process(hear, stores={"heard": "json"}, on_timer=silent, order="arrival")
    ended.to("visits", value="json")
    driver = TopologyTestDriver(app)
    click(driver, 10, 200)
    driver.run()
    assert driver.read("visits") == []


def test_a_function_that_is_not_there_is_found_by_lint(tmp_path: Any) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(
        """
application: visits
sources: {clicks: {topic: clicks}}
streams:
  ended:
    from: clicks
    steps: [{process: {call: "builtins:nothing", on_timer: "builtins:neither"}}]
    to: visits
"""
    )
    with pytest.raises(TopologyError, match=r"(?s)nothing.*neither|neither.*nothing"):
        TopologyTestDriver(str(file))


def test_a_timer_that_fails_in_front_of_a_record_takes_back_no_timer_before_it() -> None:
    broken = ["b"]

    def fires(key: str, at: int, context: Any) -> Any:
        if key in broken:
            raise ValueError("broken")
        return [(key, at)]

    def remind(record: Any, context: Any) -> Any:
        context.set_timer(record.timestamp + SILENCE)

    app = Topology("reminders")
    clicks = app.stream("clicks", key=str, value=str)
    clicks.process(remind, on_timer=fires, stores={"seen": "json"}, name="remind").to(
        "fired", value="json"
    )
    driver = TopologyTestDriver(app)
    for time, key in enumerate("abc"):
        click(driver, time, key=key)
    click(driver, 1000, key="z")
    with pytest.raises(RecordFailed, match="broken"):
        driver.run()
    broken.clear()
    driver.restart()
    driver.run()
    assert [(fired.key, fired.value) for fired in driver.read("fired")] == [
        ("a", 100),
        ("b", 101),
        ("c", 102),
    ]
