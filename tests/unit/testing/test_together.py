"""Rows and outputs that are decided together, in the driver's worker."""

from __future__ import annotations

import random
from typing import Any

import pytest

from eosframework import Record, Topology, dead_letter, tumbling
from eosframework.engine.failures.failure_headers import HEADER_MESSAGE
from eosframework.errors import RecordFailed
from eosframework.testing import TopologyTestDriver, crash_everywhere


def doubled(value: dict[str, int]) -> dict[str, int]:
    return {"n": 2 * value["n"]}


def row_of(record: Record[Any, Any]) -> dict[str, int]:
    if record.value["n"] == 26:
        raise ValueError("thirteen gives no row")
    return record.value


def count_row(record: Record[Any, Any]) -> dict[str, Any]:
    if record.value["value"] == 2:
        raise ValueError("no window of two")
    return {"count": record.value["value"]}


def topology(policy: Any = "fail") -> Topology:
    """A topic and a table from one stream, whose records are counted as well."""
    app = Topology("pairs")
    stream = app.stream("in", key=bytes, value="json").on_error(policy).map_values(doubled)
    stream.to("out", value="json")
    stream.to_table("numbers", row=row_of, value="json", commit="together")
    stream.group_by_key().count(store="seen").to("counts")
    return app


def send(driver: TopologyTestDriver, count: int) -> None:
    for n in range(count):
        driver.send("in", {"n": n}, key=b"k%d" % (n % 3))


def numbers(records: list[Record[Any, Any]]) -> list[int]:
    return sorted(record.value["n"] for record in records)


def test_each_record_has_one_output_and_one_row() -> None:
    driver = TopologyTestDriver(topology(), partitions=2)
    send(driver, 10)
    driver.run()
    assert sorted(row["n"] for row in driver.rows("numbers")) == [2 * n for n in range(10)]
    assert numbers(driver.read("out")) == [2 * n for n in range(10)]


@pytest.mark.parametrize("policy", ["skip", dead_letter("dead")])
def test_a_record_whose_row_is_refused_leaves_nothing_behind(policy: Any) -> None:
    """Neither its output nor its row nor its count is there, and the others are."""
    driver = TopologyTestDriver(topology(policy))
    send(driver, 20)
    driver.run()
    kept = [2 * n for n in range(20) if n != 13]
    assert [row["n"] for row in driver.rows("numbers")] == kept
    assert numbers(driver.read("out")) == kept
    assert sum(driver.state("seen").values()) == len(kept)
    if policy != "skip":
        [dead] = driver.read("dead")
        told = dict(dead.headers)
        assert dead.value == b'{"n":13}'
        assert b"thirteen gives no row" in (told[HEADER_MESSAGE] or b"")


def test_a_record_whose_row_is_refused_ends_the_worker_at_its_place() -> None:
    driver = TopologyTestDriver(topology())
    send(driver, 20)
    with pytest.raises(RecordFailed, match=r"in\[0\]@13 .*thirteen gives no row"):
        driver.run()
    assert [row["n"] for row in driver.rows("numbers")] == [2 * n for n in range(13)]


def test_a_result_whose_row_is_refused_follows_its_own_policy() -> None:
    app = Topology("windows")
    stream = app.stream("in", key=bytes, value="json").on_error("skip")
    counts = stream.group_by_key().window(tumbling("10s")).count(emit="close", store="counted")
    counts.to("out", value="json")
    counts.to_table("counts", row=count_row, value="json", commit="together")
    driver = TopologyTestDriver(app)
    for key, times in ((b"a", 1), (b"b", 2), (b"c", 3)):
        for _ in range(times):
            driver.send("in", {"n": 1}, key=key, timestamp=1_000)
    driver.send("in", {"n": 1}, key=b"z", timestamp=60_000)
    driver.run()
    assert sorted(row["count"] for row in driver.rows("counts")) == [1, 3]
    assert sorted(record.value["value"] for record in driver.read("out")) == [1, 3]


def test_a_crash_at_any_step_changes_nothing() -> None:
    def scenario(driver: TopologyTestDriver) -> None:
        for n in range(30):
            driver.send("in", {"n": n}, key=b"k%d" % (n % 3))
            if n % 7 == 0:
                driver.run()
        driver.run()

    assert crash_everywhere(topology("skip"), scenario) > 30


@pytest.mark.parametrize("seed", range(20))
def test_crashes_of_a_random_schedule_change_nothing(seed: int) -> None:
    chance = random.Random(seed)
    driver = TopologyTestDriver(topology("skip"), partitions=2)
    crashes = 0
    for n in range(40):
        driver.send("in", {"n": n}, key=b"k%d" % (n % 3))
        if chance.random() < 0.3:
            driver.crash_at(driver.steps + chance.randrange(1, 12))
            driver.run()
            crashes += driver.crashed
    driver.run()
    kept = [2 * n for n in range(40) if n != 13]
    assert sorted(row["n"] for row in driver.rows("numbers")) == kept
    assert numbers(driver.read("out")) == kept
    assert crashes > 3
