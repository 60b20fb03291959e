"""Sources by pattern: what lint refuses, and the sub-topologies of the topics that match."""

from __future__ import annotations

from pathlib import Path

import pytest

from eosframework import Topology
from eosframework.errors import TopologyError
from eosframework.topology.graph.description import as_mermaid, as_text, describe
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.patterns import literal_prefix, matched_by_pattern, with_matched
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

F = "tests.support.applications.functions"

HEAD = """\
application: shop
sources:
  orders: {pattern: 'orders\\..*', key: string, value: json}
"""


def messages(text: str) -> list[str]:
    return [str(finding) for finding in lint(read_yaml(text, "app.yaml"))]


def graph(text: str) -> Graph:
    return resolve(read_yaml(text, "app.yaml"))


CLEAN = f"{HEAD}streams:\n  clean: {{from: orders, to: all_orders}}\n"


def test_each_topic_that_matches_has_a_sub_topology_and_internal_topics_never_match() -> None:
    names = [
        "orders.eu",
        "orders.US-west",
        "orders.us_west",
        "my.orders.eu",
        "__orders.x",
        "orders.app-x-changelog",
        "orders.app-control",
    ]
    found = with_matched(graph(CLEAN), names)
    assert [part.name for part in found.sub_topologies] == [
        "clean.orders.us_west.b7f481bf",
        "clean.orders.eu",
        "clean.orders.us_west",
    ]
    assert [part.topics for part in found.sub_topologies] == [
        ["orders.US-west"],
        ["orders.eu"],
        ["orders.us_west"],
    ]
    assert matched_by_pattern(found) == {
        "orders": ["orders.US-west", "orders.eu", "orders.us_west"]
    }
    assert with_matched(found, ["orders.eu"]).source_topics == ["orders.eu"]
    assert found.sink_topics == with_matched(found, []).sink_topics == ["all_orders"]


def test_a_stream_merged_with_a_stated_source_keeps_the_tasks_of_that_source() -> None:
    text = f"""{HEAD}  others: {{topic: others, key: string, value: json}}
streams:
  merged: {{from: [orders, others], to: all_orders}}
  counted:
    from: others
    steps: [{{count: {{}}}}]
    to: counts
"""
    found = with_matched(graph(text), ["orders.eu"])
    stated, matched = found.sub_topologies
    assert (stated.name, stated.topics, len(stated.stores)) == ("merged", ["others"], 1)
    assert (matched.name, matched.topics, matched.stores) == ("merged.orders.eu", ["orders.eu"], ())


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ("{clean: {from: orders, to: orders.clean}}", "topic 'orders.clean' matches pattern"),
        (
            "{clean: {from: orders, on_error: {dead_letter: orders.dead}, to: clean}}",
            "topic 'orders.dead' matches pattern",
        ),
        (
            "{kept: {from: orders, steps: [{count: {}}], to: counts}}",
            "Put a group_by with partitions before it",
        ),
        (
            f"{{kept: {{from: orders, steps: [{{group_by: '{F}:tens'}}, {{count: {{}}}}], "
            "to: counts}}",
            "group_by after source 'orders' needs partitions",
        ),
        (
            f"{{kept: {{from: orders, steps: [{{group_by: {{by: '{F}:tens', partitions: 2}}}}, "
            "{count: {window: {tumbling: 1m}}}], to: counts}}",
            "a topic that is found later begins before the stream time of the others",
        ),
        (
            "{clean: {from: orders, on_error: {dead_letter: dead, retry: 10s}, to: clean}}",
            "needs an internal topic for each topic of source 'orders'",
        ),
        ("{rows: {from: orders, to: {table: orders}}}", "table orders needs an internal topic"),
    ],
)
def test_what_no_topic_found_later_could_have_is_refused_at_its_place(
    streams: str, message: str
) -> None:
    found = messages(f"{HEAD}streams: {streams}\n")
    assert len([one for one in found if message in one]) == 1, found
    assert all(one.startswith("app.yaml:4:") for one in found if message in one)


def test_windows_of_records_wait_for_no_time_and_take_topics_that_are_found_later() -> None:
    steps = (
        f"[{{group_by: {{by: '{F}:tens', partitions: 2}}}}, {{count: {{window: {{records: 5}}}}}}]"
    )
    text = f"{HEAD}streams: {{kept: {{from: orders, steps: {steps}, to: counts}}}}\n"
    assert messages(text) == []
    assert not timed_topics(with_matched(graph(text), ["orders.eu"]))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{pattern: '('}", "'(' is no regular expression"),
        ("{pattern: ''}", "the pattern is empty"),
        ("{pattern: 'a.*', topic: a}", "either a topic or a pattern"),
        ("{pattern: 'a.*', table: true}", "a table is one topic"),
        ("{pattern: 'a.*', global: true}", "a table is one topic"),
    ],
)
def test_a_bad_pattern_has_one_message(source: str, message: str) -> None:
    text = f"application: shop\nsources:\n  s: {source}\nstreams:\n  c: {{from: s, to: out}}\n"
    [found] = messages(text)
    assert message in found


def test_a_topic_has_one_source() -> None:
    text = f"""{HEAD}  eu: {{topic: orders.eu, key: string, value: json}}
streams:
  clean: {{from: orders, to: all_orders}}
  eu_only: {{from: eu, to: eu_orders}}
"""
    assert "which pattern 'orders\\\\..*' of source 'orders' matches as well" in messages(text)[0]
    two = f"""{HEAD}  more: {{pattern: '.*\\.eu', key: string, value: json}}
streams:
  clean: {{from: orders, to: all_orders}}
  eu_only: {{from: more, to: eu_orders}}
"""
    with pytest.raises(TopologyError, match="Narrow a pattern so that one source reads it"):
        with_matched(graph(two), ["orders.eu"])
    assert len(with_matched(graph(two), ["orders.us", "x.eu"]).sub_topologies) == 2


def test_python_declares_the_same_and_descriptions_show_the_pattern(tmp_path: Path) -> None:
    app = Topology("shop")
    app.stream(pattern=r"orders\..*", name="orders", key=str, value=dict).to("all_orders")
    found = with_matched(resolve(app.loaded()), ["orders.eu"])
    assert found.matched_topics == {"orders.eu": r"orders\..*"}
    assert r"pattern orders\..* of source orders: reads orders.eu" in as_text(found)
    assert describe(found)["patterns"] == [
        {"source": "orders", "pattern": r"orders\..*", "topics": ["orders.eu"]}
    ]
    assert r"/orders\..*/" in as_mermaid(found)
    with pytest.raises(TopologyError, match="either a topic or a pattern"):
        app.stream()
    with pytest.raises(TopologyError, match="either a topic or a pattern"):
        app.stream("a", pattern="b", name="c")
    with pytest.raises(TopologyError, match="needs a name="):
        app.stream(pattern="b")


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (r"orders\..*", "orders."),
        (r"orders.*", "orders"),
        (r"orders\.*", "orders"),
        (r"ab?c", "a"),
        (r"a|b", ""),
        (r".*", ""),
        (r"eu-[a-z]+", "eu-"),
        (r"ab+", "ab"),
    ],
)
def test_acls_have_the_prefix_that_each_match_begins_with(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix
