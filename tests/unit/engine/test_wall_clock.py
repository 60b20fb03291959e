"""Functions that the wall clock calls: each due time has the effects of one call (WT1 to WT5)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from eosframework import Topology, dead_letter
from eosframework.engine.operators.handlers import Context
from eosframework.engine.operators.wall_clock import LAST, Interval
from eosframework.errors import ConfigurationError, RecordFailed, TopologyError
from eosframework.records import Record
from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.topology.graph.description import describe
from eosframework.topology.lint.lint_pass import lint_strictly
from eosframework.topology.resolve.resolve import resolve

Returned = list[tuple[str, Any]] | None

HOUR_MS = 3_600_000


def beat(time: int, context: Context) -> Returned:
    return [("beat", {"at": time, "task": context.partition})]


def remember(record: Record[str, Any], context: Context) -> Returned:
    context.store("seen").put(record.key, record.value)
    context.set_timer(record.value["at"], clock="wall")
    return None


def remind(key: str, time: int, context: Context) -> Returned:
    return [(key, {"due": time})]


def sweep(time: int, context: Context) -> Returned:
    return [(key, {"seen": value["at"]}) for key, value in context.store("seen").items()]


def beating(interval: str = "1s", **options: Any) -> Topology:
    app = Topology("beating")
    app.stream("orders", key=str, value="json").every(interval, beat, **options).to("beats")
    return app


def reminding(function: Callable[..., Any] = remind, policy: Any = "fail") -> Topology:
    app = Topology("reminding")
    orders = app.stream("orders", key=str, value="json")
    stores = {"seen": "json"}
    orders.process(
        remember, stores=stores, on_wall_timer=function, every="2s", on_every=sweep, name="w"
    ).on_error(policy).to("out")
    return app


def beats(driver: TopologyTestDriver, task: int = 0) -> list[int]:
    values = [record.value for record in driver.read("beats")]
    return [value["at"] for value in values if value["task"] == task]


def found(driver: TopologyTestDriver) -> list[tuple[str, Any]]:
    return [(record.key, *record.value.items()) for record in driver.read("out")]


def pause(driver: TopologyTestDriver, seconds: float) -> None:
    """Let the clock go on without a turn of the worker, as if it was suspended."""
    driver.kafka.now += seconds


def test_a_function_is_called_at_the_multiples_of_its_interval_without_a_record() -> None:
    driver = TopologyTestDriver(beating())
    driver.run()
    driver.advance("3500ms")
    assert beats(driver) == [1000, 2000, 3000]
    assert driver.state("orders.every") == {"last": 3000}


def test_each_task_calls_it_and_with_per_application_that_of_partition_0() -> None:
    driver = TopologyTestDriver(beating(), partitions=3)
    driver.advance("2500ms")
    times = sorted((r.value["task"], r.value["at"]) for r in driver.read("beats"))
    assert times == [(task, at) for task in range(3) for at in (1000, 2000)]
    driver = TopologyTestDriver(beating(per="application"), partitions=3)
    driver.advance("2500ms")
    assert beats(driver) == [1000, 2000]


def test_after_a_pause_it_is_called_once_for_the_latest_time() -> None:
    driver = TopologyTestDriver(beating())
    driver.advance("1500ms")
    pause(driver, 60)
    driver.run()
    assert beats(driver) == [1000, 61_000]
    driver.advance("1s")
    assert beats(driver) == [62_000]


def test_the_first_transaction_notes_the_interval_and_calls_nothing() -> None:
    driver = TopologyTestDriver(beating("24h"))
    pause(driver, 12 * 3600)
    driver.run()
    assert beats(driver) == []
    driver.restart()
    pause(driver, 12 * 3600)
    driver.run()
    assert beats(driver) == [24 * HOUR_MS]


@pytest.mark.parametrize("keep_stores", [True, False])
def test_another_worker_continues_with_the_due_times(keep_stores: bool) -> None:
    driver = TopologyTestDriver(beating())
    driver.advance("1500ms")
    driver.restart(keep_stores=keep_stores)
    driver.run()
    assert beats(driver) == [1000]
    pause(driver, 11.5 - driver.now)
    driver.restart(keep_stores=keep_stores)
    driver.run()
    assert beats(driver) == [11_000]


def test_a_shorter_interval_continues_from_the_last_time() -> None:
    driver = TopologyTestDriver(beating("10s"))
    driver.advance("10500ms")
    known = driver.kafka, driver._state
    driver = TopologyTestDriver(beating("3s"))
    driver.kafka, driver._state = known
    driver.restart()
    driver.advance("2s")
    assert beats(driver) == [10_000, 12_000]


def test_timers_of_the_wall_clock_fire_once_whether_records_come_or_not() -> None:
    driver = TopologyTestDriver(reminding())
    for key, at in (("b", 3000), ("a", 3000), ("c", 5000)):
        driver.send("orders", {"at": at}, key=key, timestamp=1)
    driver.run()
    assert [row.key for row in driver.read("out")] == []
    assert driver.state("w.wall_timers")
    driver.advance("6s")
    due = [(key, value) for key, (what, value) in found(driver) if what == "due"]
    assert due == [("a", 3000), ("b", 3000), ("c", 5000)]
    assert driver.state("w.wall_timers") == {}


def test_what_is_returned_has_the_due_time_but_no_time_before_stream_time() -> None:
    driver = TopologyTestDriver(reminding())
    driver.send("orders", {"at": 500}, key="early", timestamp=2)
    driver.send("orders", {"at": 5500}, key="late", timestamp=3000)
    driver.advance("6s")
    times = {r.key: r.timestamp for r in driver.read("out") if "due" in r.value}
    assert times == {"early": 3000, "late": 5500}


def scenario(driver: TopologyTestDriver) -> None:
    driver.send("orders", {"at": 1500}, key="a", timestamp=1000)
    driver.run()
    driver.advance("1700ms")
    driver.send("orders", {"at": 2100}, key="b", timestamp=1000)
    driver.advance("4s")


def test_a_crash_at_any_step_changes_no_call() -> None:
    assert crash_everywhere(reminding(), scenario) > 20
    assert crash_everywhere(beating(), scenario) > 20


def test_without_a_due_time_in_the_transaction_of_its_call_a_crash_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WT2: the time is noted by the next transaction."""
    late: dict[Interval, int] = {}

    def closing(interval: Interval, now: int) -> Generator[tuple[bytes, int] | None]:
        if interval in late:
            interval._store.put(LAST, (late.pop(interval), 0))
        if interval.due() > now:
            return
        latest = interval._before(now)
        yield None if interval._last is None else (LAST, latest)
        interval._last = late[interval] = latest

    monkeypatch.setattr(Interval, "closing", closing)
    with pytest.raises(AssertionError, match="after a crash at step"):
        crash_everywhere(beating(), scenario)


def test_a_failed_call_goes_the_way_of_on_error() -> None:
    def refuse(key: str, time: int, context: Context) -> Returned:
        context.store("seen").put("left", {"at": 1})
        raise ValueError("not now")

    refused = reminding(refuse, dead_letter("dead"))
    driver = TopologyTestDriver(refused)
    driver.send("orders", {"at": 1500}, key="a", timestamp=1)
    driver.advance("3s")
    [letter] = driver.read("dead")
    assert letter.key == b"a"
    headers = {name: value for name, value in letter.headers if value is not None}
    assert any(b"on_wall_timer" in value for value in headers.values()), headers
    assert driver.state("w.seen") == {"a": {"at": 1500}}
    assert driver.state("w.wall_timers") == {}

    driver = TopologyTestDriver(reminding(refuse))
    driver.send("orders", {"at": 1500}, key="a", timestamp=1)
    with pytest.raises(RecordFailed, match="on_wall_timer"):
        driver.advance("3s")
    driver.restart()
    assert driver.state("w.wall_timers") != {}


def test_a_timer_needs_its_function_and_a_key() -> None:
    def plan(record: Record[str, Any], context: Context) -> Returned:
        context.set_timer(1, clock="wall")
        return None

    def set_without_key(time: int, context: Context) -> Returned:
        context.set_timer(time + 1, clock="wall")
        return None

    app = Topology("a")
    orders = app.stream("orders", key=str, value="json")
    orders.process(plan, stores={"seen": "json"}).to("out")
    driver = TopologyTestDriver(app)
    driver.send("orders", {}, key="a")
    with pytest.raises(RecordFailed, match=r"declare on_wall_timer: module:function"):
        driver.run()

    app = Topology("b")
    orders = app.stream("orders", key=str, value="json")
    orders.process(remember, on_wall_timer=remind, every="1s", on_every=set_without_key).to("out")
    with pytest.raises(RecordFailed, match="a timer needs a key"):
        TopologyTestDriver(app).advance("2s")
    with pytest.raises(ConfigurationError, match="clock='moon' is unknown"):
        Context({}, None, resolve(app.loaded()).sources[0].key).set_timer(1, clock="moon")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "10s"}, "every is stated without on_every"),
        ({"on_every": beat}, "on_every is stated without every"),
        ({"every": "0s", "on_every": beat}, "every: is shorter than 1ms"),
        ({"every": "1s", "on_every": remind}, "is called with 2 arguments"),
        ({"on_wall_timer": beat}, "is called with 3 arguments"),
    ],
)
def test_an_incomplete_declaration_is_refused(options: dict[str, Any], message: str) -> None:
    orders = (app := Topology("a")).stream("orders", key=str, value="json")

    def declare() -> None:
        orders.process(remember, **options).to("out")
        resolve(app.loaded())

    with pytest.raises(TopologyError, match=message):
        declare()


def test_lint_names_what_runs_in_no_backfill() -> None:
    strict = [f.message for f in lint_strictly(reminding().loaded()) if f.rule == "arrival"]
    for role in ("on_every", "on_wall_timer"):
        assert any(
            f"{role} is called by the wall clock, and never in a backfill" in m for m in strict
        )


def test_describe_lists_the_stores_of_due_times() -> None:
    described = describe(resolve(reminding().loaded()))
    stores = [store["name"] for part in described["sub_topologies"] for store in part["stores"]]
    assert {"w.every", "w.wall_timers", "w.seen"} <= set(stores)
