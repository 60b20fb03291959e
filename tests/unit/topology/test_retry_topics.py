"""Which topics an application has for records that are processed again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from eosframework import Topology, dead_letter
from eosframework.application.internal_topics import own_topics
from eosframework.application.topic_settings import TopicRole
from eosframework.errors import TopologyError
from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.topology.graph.graph import Graph, RetryOf
from eosframework.topology.graph.walk import without_retries
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.resolve.resolve import resolve
from tests.unit.topology.apps import read

RETRIED = """\
application: a
sources:
  s: {topic: raw, value: json}
streams:
  x:
    from: s
    steps: [{map_values: "m:shape"}]
    on_error: {dead_letter: dead, retry: [10s, 1m]}
    to: out
"""


def retries_of(graph: Graph) -> dict[str, RetryOf | None]:
    return {s.topic: s.retry_of for part in graph.sub_topologies for s in part.sources}


def test_each_source_has_a_topic_for_each_delay_and_one_for_replays() -> None:
    graph = resolve(read(RETRIED))
    assert retries_of(graph) == {
        "raw": None,
        "a-s.10s-retry": RetryOf("raw", 10_000),
        "a-s.1m-retry": RetryOf("raw", 60_000),
        "a-s-replay": RetryOf("raw"),
    }
    [part] = graph.sub_topologies
    assert len({id(source.children) for source in part.sources}) == 1
    assert part.sink_topics == ("a-s.10s-retry", "a-s.1m-retry", "dead", "out")
    own = own_topics(graph, {"raw": 4})
    assert {topic.name: (topic.role, topic.partitions) for topic in own.values()} == {
        "a-s.10s-retry": (TopicRole.RETRY, 4),
        "a-s.1m-retry": (TopicRole.RETRY, 4),
        "a-s-replay": (TopicRole.REPLAY, 4),
    }


def test_python_declares_the_same() -> None:
    app = Topology("a")
    stream = app.stream("raw", value=dict, name="s").map_values(len)
    stream.on_error(dead_letter("dead", retry=["10s", timedelta(minutes=1)])).to("out")
    assert retries_of(resolve(app.loaded())) == retries_of(resolve(read(RETRIED)))


def test_a_backfill_has_none_of_them() -> None:
    graph = without_retries(resolve(read(RETRIED)))
    assert retries_of(graph) == {"raw": None}
    assert graph.repartitions == ()
    assert graph.sub_topologies[0].sink_topics == ("dead", "out")


def test_replay_alone_makes_one_topic() -> None:
    graph = resolve(read(RETRIED.replace("retry: [10s, 1m]", "replay: true")))
    assert list(retries_of(graph)) == ["raw", "a-s-replay"]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("{retry: [10s]}", "retry has no dead_letter"),
        ("{dead_letter: dead, retry: [0s]}", "does not wait"),
        ("{dead_letter: dead, retry: [soon]}", "no duration"),
        ("{dead_letter: dead, retri: [1s]}", "is no policy"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused(policy: str, message: str) -> None:
    text = RETRIED.replace("{dead_letter: dead, retry: [10s, 1m]}", policy)
    assert message in "\n".join(map(str, lint(read(text))))


def test_a_delay_that_is_none_is_refused_in_python_where_it_stands() -> None:
    with pytest.raises(TopologyError, match=r"test_retry_topics\.py.*no duration"):
        dead_letter("dead", retry="soon")


def test_where_a_task_remembers_neither_can_be_used() -> None:
    counted = RETRIED.replace('[{map_values: "m:shape"}]', '[{map_values: "m:shape"}, {count: {}}]')
    [finding] = lint(read(counted))
    assert finding.rule == "retry"
    assert (finding.place.line, "remembers" in finding.message) == (8, True)


def test_in_front_of_a_group_by_both_can() -> None:
    steps = '[{map_values: "m:shape"}, {group_by: "m:by_carrier"}, {count: {}}]'
    graph = resolve(read(RETRIED.replace('[{map_values: "m:shape"}]', steps)))
    found = {part.name: [s.topic for s in part.sources] for part in graph.sub_topologies}
    assert [len(topics) for topics in found.values()] == [4, 1]


class Flaky:
    """Fails until it is fixed."""

    def __init__(self) -> None:
        self.is_mended = False

    def __call__(self, value: Any) -> Any:
        if value["n"] == 7 or (value["n"] == 3 and not self.is_mended):
            raise ValueError("not yet")
        return value


def flaky_app(flaky: Flaky) -> Topology:
    app = Topology("a")
    stream = app.stream("raw", value=dict, name="s").map_values(flaky)
    stream.on_error(dead_letter("dead", retry=["10s", "1m"])).to("out", value="json")
    return app


def test_a_test_of_a_topology_lets_time_pass_for_retries() -> None:
    flaky = Flaky()
    driver = TopologyTestDriver(flaky_app(flaky))
    for n in range(5):
        driver.send("raw", {"n": n})
    driver.run()
    assert [record.value["n"] for record in driver.read("out")] == [0, 1, 2, 4]
    driver.advance(timedelta(seconds=11))
    assert driver.read("out") == []
    flaky.is_mended = True
    driver.advance(timedelta(seconds=61))
    [record] = driver.read("out")
    assert (record.value, record.headers) == ({"n": 3}, ())
    assert driver.read("dead") == []


@pytest.mark.parametrize("partitions", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_a_crash_at_any_step_changes_nothing_for_records_that_wait(partitions: int) -> None:
    flaky = Flaky()

    def scenario(driver: TopologyTestDriver) -> None:
        flaky.is_mended = False
        for n in range(10):
            driver.send("raw", {"n": n}, key=bytes([n]))
        driver.run()
        driver.advance(timedelta(seconds=20))
        flaky.is_mended = True
        driver.advance(timedelta(seconds=90))

    driver = TopologyTestDriver(flaky_app(flaky), partitions=partitions)
    scenario(driver)
    assert sorted(r.value["n"] for r in driver.read("out")) == [n for n in range(10) if n != 7]
    [letter] = driver.read("dead")
    assert dict(letter.headers)["__eos.errors.attempts"] == b"3"
    assert crash_everywhere(flaky_app(flaky), scenario, partitions=partitions) > 10
