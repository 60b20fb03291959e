"""The reorder step, through the worker's own cycle."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework import Topology, dead_letter, session
from eosframework.engine.failures.failure_headers import (
    HEADER_MESSAGE,
    HEADER_OFFSET,
    HEADER_TOPIC,
)
from eosframework.engine.operators.store_transaction import Limits
from eosframework.engine.task import open_state
from eosframework.errors import RecordFailed
from eosframework.testing import TopologyTestDriver, crash_everywhere

TOPIC = "sessions-in-repartition"


def key_of(record: Any) -> str:
    return record.value["key"]


def listed(numbers: list[int], value: Any) -> list[int]:
    return [*numbers, 100 // value["number"]]


def merged(earlier: list[int], later: list[int]) -> list[int]:
    return [*earlier, *later]


def sessions(on_error: Any = "fail") -> Topology:
    app = Topology("sessions")
    keyed = app.stream("in", value="json").group_by(key_of, key=str)
    keyed.count(store="all").to("counts")
    windows = keyed.window(session("10ms"), grace="5ms")
    found = windows.aggregate(list, listed, merge=merged, emit="close")
    found.on_error(on_error).to("out")
    return app


def send(driver: TopologyTestDriver, time: int, number: int = 1, partition: int = 0) -> None:
    value = {"key": "a", "number": number}
    driver.send("in", value, timestamp=time, partition=partition)


def found(driver: TopologyTestDriver) -> list[tuple[int, int, list[int]]]:
    return [(r.value.start, r.value.end, r.value.value) for r in driver.read("out")]


def limited(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(open_state, "Limits", lambda: Limits(held=held))


def two_tasks(on_error: Any = "fail") -> TopologyTestDriver:
    return TopologyTestDriver(sessions(on_error), partitions=2, max_task_idle=None)


def test_records_are_held_for_the_steps_that_need_order_and_for_no_others() -> None:
    driver = two_tasks()
    send(driver, 105, 50)
    driver.run()
    send(driver, 100, 100, partition=1)
    driver.run()
    assert [r.value for r in driver.read("counts")] == [1, 2]
    assert found(driver) == []
    assert driver.held == 2
    for partition in (0, 1):
        send(driver, 1000, partition=partition)
    driver.run()
    assert found(driver) == [(100, 105, [1, 2])]
    assert driver.held == 2, "those at stream time itself"


def test_held_records_survive_the_loss_of_their_stores() -> None:
    driver = two_tasks()
    send(driver, 105, 50)
    driver.run()
    driver.restart(keep_stores=False)
    send(driver, 100, 100, partition=1)
    driver.run()
    for partition in (0, 1):
        send(driver, 1000, partition=partition)
    driver.run()
    assert found(driver) == [(100, 105, [1, 2])]


def feed(driver: TopologyTestDriver) -> None:
    for number in range(1, 7):
        send(driver, 100 + 5 * (number ^ 1), number, number % 2)
        driver.run()
    send(driver, 1000)
    send(driver, 1000, partition=1)
    driver.run()


def test_a_crash_at_any_step_changes_no_result() -> None:
    assert crash_everywhere(sessions(), feed, partitions=2) > 30


def test_a_held_record_that_fails_is_a_dead_letter_of_its_own_topic() -> None:
    driver = two_tasks(dead_letter("dead"))
    send(driver, 105, 0)
    send(driver, 106, 50)
    send(driver, 1000)
    send(driver, 1000, partition=1)
    driver.run()
    [letter] = driver.read("dead")
    headers = dict(letter.headers)
    assert headers[HEADER_TOPIC] == TOPIC.encode()
    assert headers[HEADER_OFFSET] == b"0"
    assert "__eos.time" not in headers
    assert found(driver) == [(106, 106, [2])]


def test_a_held_record_that_fails_stops_the_task_each_time_it_is_released() -> None:
    driver = two_tasks()
    send(driver, 105, 0)
    send(driver, 1000)
    send(driver, 1000, partition=1)
    for _ in range(2):
        with pytest.raises(RecordFailed, match="ZeroDivisionError"):
            driver.run()
        driver.restart()


def test_beyond_the_limit_the_oldest_record_is_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited(monkeypatch, 2)
    driver = two_tasks(dead_letter("dead"))
    for number, time in enumerate((103, 101, 102), 1):
        send(driver, time, number)
    driver.run()
    [letter] = driver.read("dead")
    assert letter.value == b'{"key":"a","number":1}'
    assert b"worker.reorder_limit is 2" in (dict(letter.headers)[HEADER_MESSAGE] or b"")
    limited(monkeypatch, 10)
    driver.restart()
    for partition in (0, 1):
        send(driver, 1000, partition=partition)
    driver.run()
    assert found(driver) == [(101, 102, [50, 33])]


def test_beyond_the_limit_a_task_fails_and_resumes_with_a_higher_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited(monkeypatch, 2)
    driver = two_tasks()
    for number, time in enumerate((101, 102, 103), 1):
        send(driver, time, number)
    with pytest.raises(RecordFailed, match=r"worker.reorder_limit is 2"):
        driver.run()
    limited(monkeypatch, 10)
    driver.restart()
    for partition in (0, 1):
        send(driver, 1000, partition=partition)
    driver.run()
    assert found(driver) == [(101, 103, [100, 50, 33])]


def test_the_last_records_are_released_once_all_upstream_tasks_are_idle() -> None:
    driver = TopologyTestDriver(sessions(), partitions=2, max_task_idle="2s")
    send(driver, 101, 50)
    send(driver, 1000, 50, partition=1)
    driver.run()
    assert found(driver) == [(101, 101, [2])]
    assert driver.state("in.keyed.__reorder") == {}


def test_records_in_the_order_of_their_arrival_are_not_held() -> None:
    app = Topology("plain")
    keyed = app.stream("in", value="json").group_by(key_of, key=str)
    keyed.deduplicate("10ms", order="arrival").to("out", value="json")
    driver = TopologyTestDriver(app, partitions=2, max_task_idle=None)
    send(driver, 105)
    driver.run()
    assert [record.timestamp for record in driver.read("out")] == [105]
    assert all(part.reorder is None for part in driver.graph.sub_topologies)
