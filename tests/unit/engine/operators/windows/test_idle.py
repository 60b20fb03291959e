"""Windows that the clock closes, and what it must not close."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from eosframework import Topology, WindowResult, session, sliding, tumbling
from eosframework.errors import ClusterUnreachable
from eosframework.testing import TopologyTestDriver, crash_everywhere
from tests.unit.engine.operators.windows.functions import append, empty, joined

KINDS = {"tumbling": tumbling("10ms"), "sliding": sliding("10ms"), "session": session("10ms")}


def counts(window: Any = KINDS["tumbling"], **options: Any) -> Topology:
    app = Topology("w")
    keyed = app.stream("in", key=str, value=int).group_by_key()
    windows = keyed.window(window, close_when_idle="30s", late="late", **options)
    windows.count(emit="close", store="counts").to("out")
    return app


def fill(driver: TopologyTestDriver, *records: tuple[str, int], partition: int = 0) -> None:
    for key, at in records:
        driver.send("in", at, key=key, timestamp=at, partition=partition)


def shown(driver: TopologyTestDriver, topic: str = "out") -> list[Any]:
    return [
        (r.key, r.value.start, r.value.end, r.value.value)
        for r in driver.read(topic)
        if isinstance(r.value, WindowResult)
    ]


def test_open_windows_close_when_nothing_came_for_the_time() -> None:
    driver = TopologyTestDriver(counts())
    fill(driver, ("a", 1), ("b", 12), ("a", 13))
    driver.run()
    assert shown(driver) == [("a", 0, 10, 1)]
    driver.advance(timedelta(seconds=20))
    assert shown(driver) == []
    driver.advance(timedelta(seconds=20))
    assert shown(driver) == [("a", 10, 20, 1), ("b", 10, 20, 1)]


@pytest.mark.parametrize("window", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("keep_stores", [True, False])
def test_no_window_goes_on_twice(window: Any, keep_stores: bool) -> None:
    driver = TopologyTestDriver(counts(window))
    found: list[Any] = []
    for at in (5, 6, 3, 8, 30, 31, 100):
        fill(driver, ("a", at))
        driver.run()
        driver.advance(timedelta(seconds=40))
        driver.restart(keep_stores=keep_stores)
        found += shown(driver)
    assert len(found) > 2
    assert len({(start, end) for _, start, end, _ in found}) == len(found)


@pytest.mark.parametrize("keep_stores", [True, False])
def test_a_record_for_a_window_that_the_clock_closed_is_late(keep_stores: bool) -> None:
    driver = TopologyTestDriver(counts())
    fill(driver, ("a", 1))
    driver.run()
    driver.advance(timedelta(seconds=40))
    assert shown(driver) == [("a", 0, 10, 1)]
    driver.restart(keep_stores=keep_stores)
    fill(driver, ("a", 2))
    driver.run()
    driver.advance(timedelta(seconds=40))
    assert shown(driver) == []
    assert [r.value for r in driver.read("late")] == [b"\0\0\0\0\0\0\0\2"]
    fill(driver, ("a", 100), ("a", 200))
    driver.run()
    assert [(r[0], r[3]) for r in shown(driver)] == [("a", 1)]


def test_each_record_begins_the_time_anew() -> None:
    driver = TopologyTestDriver(counts())
    for at in range(5):
        fill(driver, ("a", at))
        driver.run()
        driver.advance(timedelta(seconds=20))
    assert shown(driver) == []
    driver.advance(timedelta(seconds=20))
    assert shown(driver) == [("a", 0, 10, 5)]


def test_brokers_that_do_not_answer_close_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = TopologyTestDriver(counts())
    fill(driver, ("a", 1))
    driver.run()

    def away(*_: Any) -> Any:
        raise ClusterUnreachable("no broker answers")

    with monkeypatch.context() as patched:
        patched.setattr("eosframework.testing.memory_kafka.MemoryInput.high_watermarks", away)
        driver.advance(timedelta(seconds=100))
        assert shown(driver) == []
    driver.advance(timedelta(seconds=40))
    assert shown(driver) == [("a", 0, 10, 1)]


def test_after_an_outage_the_time_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that could not be sent during the outage are not late."""
    driver = TopologyTestDriver(counts())
    fill(driver, ("a", 1))
    driver.run()
    driver.advance(timedelta(seconds=20))

    def away(*_: Any) -> Any:
        raise ClusterUnreachable("no broker answers")

    with monkeypatch.context() as patched:
        patched.setattr("eosframework.testing.memory_kafka.MemoryInput.high_watermarks", away)
        driver.advance(timedelta(seconds=20))
    driver.advance(timedelta(seconds=20))
    assert shown(driver) == []
    fill(driver, ("a", 2))
    driver.run()
    driver.advance(timedelta(seconds=40))
    assert shown(driver) == [("a", 0, 10, 2)]


def test_a_process_that_stood_still_waits_for_the_whole_time_again() -> None:
    driver = TopologyTestDriver(counts())
    fill(driver, ("a", 1))
    driver.run()
    driver.kafka.now += 100
    driver.advance(timedelta(seconds=20))
    assert shown(driver) == []
    driver.advance(timedelta(seconds=20))
    assert shown(driver) == [("a", 0, 10, 1)]


def grouped() -> Topology:
    app = Topology("w")
    words = app.stream("in", key=str, value=int)
    keyed = words.group_by(str_of_value, key=str, value=int)
    keyed.window(tumbling("10ms"), close_when_idle="30s").count(emit="close").to("out")
    return app


def str_of_value(record: Any) -> str:
    return "even" if record.value % 2 == 0 else "odd"


def test_a_task_behind_a_topic_of_the_application_closes_as_well() -> None:
    driver = TopologyTestDriver(grouped(), partitions=2)
    fill(driver, ("a", 1), ("b", 2))
    fill(driver, ("c", 3), partition=1)
    driver.run()
    driver.advance(timedelta(seconds=40))
    assert sorted(shown(driver)) == [("even", 0, 10, 1), ("odd", 0, 10, 2)]


def test_nothing_closes_while_records_wait_on_the_way_to_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task that feeds it is held up, as after an outage."""
    driver = TopologyTestDriver(grouped())
    fill(driver, ("a", 1))
    driver.run()
    worker = driver._worker
    feeding = next(t for t in worker.tasks.values() if t.partitions[0].topic == "in")
    with monkeypatch.context() as held:
        held.setattr(feeding, "run", lambda until, membership: None)
        fill(driver, ("a", 3))
        for _ in range(600):
            worker.turn()
            driver.kafka.now += 0.1
        assert shown(driver) == []
    driver.run()
    driver.advance(timedelta(seconds=40))
    assert shown(driver) == [("odd", 0, 10, 2)]


@pytest.mark.parametrize("window", KINDS.values(), ids=KINDS)
def test_a_crash_at_any_step_leaves_no_trace(window: Any) -> None:
    def scenario(driver: TopologyTestDriver) -> None:
        for turn in range(3):
            fill(driver, ("a", 20 * turn), ("b", 20 * turn + 4), ("a", 20 * turn + 7))
            driver.run()
        driver.advance(timedelta(seconds=45))
        fill(driver, ("a", 200))
        driver.run()

    app = Topology("w")
    keyed = app.stream("in", key=str, value=int).group_by_key()
    windows = keyed.window(window, close_when_idle="30s")
    merge = joined if window is KINDS["session"] else None
    windows.aggregate(empty, append, merge=merge, emit="close").to("out")
    assert crash_everywhere(app, scenario) > 30


@pytest.mark.parametrize("waits", [True, False])
def test_what_feeds_a_task_may_be_on_another_worker(waits: bool) -> None:
    """The committed positions show whether a record waits there."""
    driver = TopologyTestDriver(grouped())
    fill(driver, ("a", 1))
    driver.run()
    if waits:
        fill(driver, ("a", 3))
    worker = driver._worker
    idle = worker._idle_windows
    task = next(t for t in worker.tasks.values() if t.partitions[0].topic != "in")
    for _ in range(40):
        driver.kafka.now += 1
        idle.look_at(task, "member")
    assert task.in_transaction == (not waits)
