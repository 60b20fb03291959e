"""Stream time behind repartition topics, through the worker's own cycle."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from eosframework import Topology, tumbling
from eosframework.engine.operators.watermarks import WATERMARK_KEY
from eosframework.records import TopicPartition
from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.testing.topology_test_driver import graph_of
from eosframework.topology.graph.timed_topics import timed_topics


def key_of(record: Any) -> str:
    return record.value["key"]


def counts(emit: Any = "close") -> Topology:
    app = Topology("counts")
    keyed = app.stream("in", value="json").group_by(key_of, key=str)
    keyed.window(tumbling("10ms"), grace="5ms").count(emit=emit).to("out")
    return app


def send(driver: TopologyTestDriver, time: int, partition: int = 0, key: str = "a") -> None:
    driver.send("in", {"key": key}, timestamp=time, partition=partition)


def found(driver: TopologyTestDriver) -> list[tuple[str, int, int]]:
    return [(r.key, r.value.start, r.value.value) for r in driver.read("out")]


def test_a_slow_upstream_task_makes_no_record_late() -> None:
    driver = TopologyTestDriver(counts(), partitions=2, max_task_idle=None)
    send(driver, 1000)
    driver.run()
    send(driver, 101, partition=1)
    driver.run()
    assert found(driver) == []
    send(driver, 1000, partition=1)
    driver.run()
    assert found(driver) == [("a", 100, 1)]


def test_an_idle_task_holds_nothing_and_its_next_record_may_be_late() -> None:
    driver = TopologyTestDriver(counts(), partitions=2, max_task_idle="2s")
    send(driver, 101)
    send(driver, 1000)
    driver.run()
    assert driver.now >= 2
    assert found(driver) == [("a", 100, 1)]
    send(driver, 102, partition=1)
    driver.run()
    assert found(driver) == []
    assert driver.passed_over == 1


def test_a_restart_without_stores_keeps_what_upstream_tasks_told() -> None:
    driver = TopologyTestDriver(counts(), partitions=2, max_task_idle=None)
    send(driver, 101)
    send(driver, 500)
    send(driver, 400, partition=1)
    driver.run()
    assert found(driver) == [("a", 100, 1)]
    driver.restart(keep_stores=False)
    send(driver, 1000)
    driver.run()
    assert found(driver) == []
    send(driver, 1000, partition=1)
    driver.run()
    assert sorted(found(driver)) == [("a", 400, 1), ("a", 500, 1)]


def feed(driver: TopologyTestDriver) -> None:
    for number in range(6):
        send(driver, 100 + 7 * number, number % 2, "ab"[number % 3 % 2])
        driver.run()
    send(driver, 1000)
    send(driver, 1000, 1)
    driver.run()


def test_a_crash_at_any_step_changes_no_result() -> None:
    assert crash_everywhere(counts(), feed, partitions=2) > 30


def test_watermarks_and_times_of_writing_reach_no_sink_and_no_reader() -> None:
    driver = TopologyTestDriver(counts("each"), max_task_idle=None)
    for time in (100, 108, 103):
        send(driver, time)
    driver.run()
    assert [r.headers for r in driver.read("out")] == [(), (), ()]
    [topic] = driver.graph.repartition_topics
    assert [r.timestamp for r in driver.read(topic)] == [100, 108, 103]
    log = driver.kafka.logs[TopicPartition(topic, 0)]
    assert any(message.key() == WATERMARK_KEY for message in log.messages)
    headers = [m.headers() for m in log.messages if m.key() != WATERMARK_KEY]
    assert [bool(header) for header in headers] == [False, False, True]


def test_a_reader_that_does_not_depend_on_time_gets_no_watermarks() -> None:
    app = Topology("plain")
    app.stream("in", value="json").group_by(key_of, key=str).count().to("out")
    driver = TopologyTestDriver(app, partitions=2)
    send(driver, 100)
    driver.run()
    assert timed_topics(driver.graph) == {}
    messages = [m for log in driver.kafka.logs.values() for m in log.messages]
    assert not any(message.key() == WATERMARK_KEY for message in messages)


def test_results_that_wait_hold_back_the_time_of_what_follows() -> None:
    app = Topology("chain")
    keyed = app.stream("in", value="json").group_by(key_of, key=str)
    first = keyed.window(tumbling("10ms"), grace="5ms").count(emit="close")
    again = first.group_by(key_of, key=str, name="again").window(tumbling("10ms"))
    again.count(store="again", emit="close").to("out")
    timed = timed_topics(graph_of(app))
    assert sorted(topic.hold_ms for topic in timed.values()) == [0, 15]


def test_windows_that_the_clock_closes_are_counted() -> None:
    app = Topology("idle")
    keyed = app.stream("in", key=str, value="json").group_by_key()
    keyed.window(tumbling("10ms"), close_when_idle="2s").count(emit="close").to("out")
    driver = TopologyTestDriver(app)
    driver.send("in", {"k": "a"}, key="a", timestamp=101)
    driver.run()
    assert (found(driver), driver.closed_by_clock) == ([], 0)
    driver.advance(timedelta(seconds=10))
    assert (found(driver), driver.closed_by_clock) == ([("a", 100, 1)], 1)
