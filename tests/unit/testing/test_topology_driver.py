"""The driver runs the worker's own code; crashes anywhere leave no trace in what it shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from eosframework import Topology
from eosframework.errors import ConfigurationError, OutcomeUnknown
from eosframework.testing import TopologyTestDriver, crash_everywhere, topology_test_driver
from eosframework.testing.memory_kafka import MemoryOutput
from eosframework.transactions.ports import Committed


def word(record: Any) -> str:
    return record.value["word"]


def length(value: dict[str, Any]) -> int:
    return len(value["word"])


def words(**options: Any) -> Topology:
    app = Topology("words")
    lines = app.stream("lines", key=str, value=dict)
    lines.group_by(word, key=str).count(store="counts", **options).to("counts")
    lines.group_by_key().sum(length, store="lengths", value=int).to("lengths")
    return app


def send(driver: TopologyTestDriver, *spoken: str, by: str = "me") -> None:
    for number, each in enumerate(spoken):
        driver.send("lines", {"word": each}, key=by, timestamp=1000 + number)


def test_records_go_through_all_sub_topologies_and_show_in_outputs_and_state() -> None:
    driver = TopologyTestDriver(words(), partitions=3)
    send(driver, "a", "bb", "a", "a")
    driver.run()
    assert [(r.key, r.value) for r in driver.read("lengths")] == [
        ("me", 1),
        ("me", 3),
        ("me", 4),
        ("me", 5),
    ]
    assert sorted((r.key, r.value) for r in driver.read("counts")) == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("bb", 1),
    ]
    assert driver.state("counts") == {"a": 3, "bb": 1}
    assert driver.read("counts") == []
    send(driver, "a")
    driver.run()
    assert [(r.key, r.value, r.timestamp) for r in driver.read("counts")] == [("a", 4, 1003)]


@pytest.mark.parametrize("keep_stores", [True, False])
def test_state_outlasts_a_worker(keep_stores: bool) -> None:
    driver = TopologyTestDriver(words(), partitions=2)
    send(driver, "a", "b", "a")
    driver.run()
    driver.restart(keep_stores=keep_stores)
    send(driver, "a")
    driver.run()
    assert driver.state("counts") == {"a": 3, "b": 1}
    assert driver.state("lengths") == {"me": 4}


def test_with_the_update_cache_only_the_last_value_of_a_transaction_goes_out() -> None:
    driver = TopologyTestDriver(words(emit="commit"))
    send(driver, *["a"] * 50)
    driver.run()
    found = [record.value for record in driver.read("counts")]
    assert found[-1] == 50
    assert len(found) < 50


@pytest.mark.parametrize("emit", ["each", "commit"])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_crash_at_any_step_leaves_no_trace(emit: str, partitions: int) -> None:
    def scenario(driver: TopologyTestDriver) -> None:
        for turn in range(3):
            send(driver, "a", "b", f"c{turn}", by="me")
            send(driver, "a", by="you")
            driver.run()
            driver.advance(timedelta(seconds=1))

    assert crash_everywhere(words(emit=emit), scenario, partitions=partitions) > 30


def test_what_is_remembered_beside_a_store_is_found_out() -> None:
    """What the check is worth: a function that counts in a variable counts twice after a crash."""
    seen: list[Any] = []

    def number(value: Any) -> int:
        seen.append(value)
        return len(seen)

    app = Topology("words")
    app.stream("lines", key=str, value=dict).map_values(number).to("numbers", value=int)

    def scenario(driver: TopologyTestDriver) -> None:
        seen.clear()
        send(driver, "a", "a", "a")
        driver.run()

    with pytest.raises(AssertionError, match="after a crash at step"):
        crash_everywhere(app, scenario)


def test_a_topic_or_store_that_is_not_there_is_named() -> None:
    driver = TopologyTestDriver(words())
    with pytest.raises(ConfigurationError, match="no source reads topic 'line'"):
        driver.send("line", {})
    with pytest.raises(ConfigurationError, match="there are counts, lengths"):
        driver.state("sums")


@pytest.mark.parametrize("commit", range(1, 7))
@pytest.mark.parametrize("done", [True, False])
def test_a_commit_without_an_answer_is_decided_by_the_log(
    monkeypatch: pytest.MonkeyPatch, commit: int, done: bool
) -> None:
    """Also the first one of a task, in the turn in which it began to run."""
    numbers = count(1)
    answer = MemoryOutput.commit

    def lose_the_answer(self: MemoryOutput, asked: Any) -> Any:
        if next(numbers) != commit:
            return answer(self, asked)
        if done:
            answer(self, asked)
        return Committed(OutcomeUnknown("no answer"))

    monkeypatch.setattr(MemoryOutput, "commit", lose_the_answer)
    each_turn = replace(topology_test_driver.OPTIONS, commit_interval_seconds=0.0)
    monkeypatch.setattr(topology_test_driver, "OPTIONS", each_turn)
    driver = TopologyTestDriver(words(), partitions=2)
    for _ in range(3):
        send(driver, "a", "b", "a")
        driver.run()
    assert driver.state("counts") == {"a": 6, "b": 3}
    assert driver.state("lengths") == {"me": 9}
    assert [r.value for r in driver.read("lengths")] == list(range(1, 10))
    assert [r.value for r in driver.read("counts") if r.key == "a"] == [1, 2, 3, 4, 5, 6]
    assert next(numbers) > commit, "there were fewer commits"


def test_a_topic_that_the_topology_does_not_have_is_not_read() -> None:
    app = Topology("known")
    app.stream("in", value="json").to("out")
    driver = TopologyTestDriver(app)
    with pytest.raises(ConfigurationError, match="neither reads nor writes topic 'ouT'; did you"):
        driver.read("ouT")
    assert driver.read("out") == driver.read("in") == []


def test_times_may_be_datetimes_and_durations_text() -> None:
    app = Topology("timed")
    app.stream("in", value="json").to("out")
    driver = TopologyTestDriver(app)
    driver.send("in", 1, timestamp=datetime(2026, 3, 1, 12, tzinfo=UTC))
    driver.advance("90s")
    assert [record.timestamp for record in driver.read("out")] == [1_772_366_400_000]
    assert driver.now >= 90
