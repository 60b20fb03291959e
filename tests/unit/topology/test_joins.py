"""Tables and joins: what fits together, where records change tasks, and what the graph says."""

from __future__ import annotations

import textwrap
from datetime import timedelta
from typing import Any

import pytest

from eosframework.application.internal_topics import own_topics
from eosframework.application.needed_access import topic_access
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.description import as_mermaid, as_text, describe
from eosframework.topology.graph.graph import Graph, JoinSide, StreamJoin
from eosframework.topology.graph.walk import nodes_of
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import Severity
from eosframework.topology.spec.topology_spec import TopologySpec

SOURCES = """\
application: app
sources:
  flights: {topic: flights, key: string, value: json}
  clicks: {topic: clicks, key: string, value: json}
  planes: {topic: planes, key: string, value: json, table: true}
  models: {topic: models, key: string, value: json, table: true}
  weather: {topic: weather, key: string, value: json, history: 7d}
  airports: {topic: airports, key: string, value: json, global: true}
  bare: {topic: bare, table: true}
streams:
"""


def findings(streams: str, sources: str = SOURCES) -> list[str]:
    app = read_yaml(sources + textwrap.indent(textwrap.dedent(streams), "  "), "app.yaml")
    return [str(f) for f in lint(app) if f.severity is Severity.ERROR]


def graph_of(streams: str) -> Graph:
    return resolve(read_yaml(SOURCES + textwrap.indent(textwrap.dedent(streams), "  "), "a.yaml"))


def joined(step: str, source: str = "flights") -> str:
    return f"out:\n  from: {source}\n  steps: [join: {{by: 'builtins:max', {step}}}]\n  to: out\n"


@pytest.mark.parametrize(
    ("step", "source"),
    [
        ("with: planes", "flights"),
        ("with: planes, kind: left", "flights"),
        ("with: weather", "flights"),
        ("with: airports, key: 'builtins:str'", "flights"),
        ("with: airports, kind: left", "planes"),
        ("with: models, kind: outer", "planes"),
        ("with: weather, kind: left", "planes"),
        ("with: clicks, within: 10m, kind: outer", "flights"),
        ("with: clicks, before: 0s, after: 1h, grace: 1m", "flights"),
        ("with: flights, within: 1m", "flights"),
    ],
)
def test_what_fits_together_is_joined(step: str, source: str) -> None:
    assert findings(joined(step, source)) == []
    graph_of(joined(step, source))


@pytest.mark.parametrize(
    ("step", "source", "said"),
    [
        ("with: plains", "flights", "did you mean 'planes'"),
        ("with: clicks", "flights", "which is a stream: no row of it is current"),
        ("with: planes, within: 10m", "flights", "state history: at the table"),
        ("with: airports, within: 10m", "flights", "leave out within:"),
        ("with: planes, kind: outer", "flights", "has no time at which it would be emitted"),
        ("with: airports, kind: outer", "flights", "has no time at which it would be emitted"),
        ("with: planes, key: 'builtins:str'", "flights", "make the table global: true"),
        ("with: clicks, within: 10m, key: 'builtins:str'", "flights", "key goes with a global"),
        ("with: planes, grace: 10m", "flights", "grace is for joins of streams"),
        ("with: planes", "planes", "has its rows from the same table"),
        ("with: bare", "flights", "has string keys and 'bare' has bytes keys"),
        ("with: clicks, within: fast", "flights", "'fast' is no duration"),
        ("with: clicks, within: 1m, value: jsn", "flights", "there is no serde 'jsn'"),
        ("with: planes, by: 'nowhere:f'", "flights", "nowhere"),
    ],
)
def test_what_does_not_fit_is_found_with_its_place(step: str, source: str, said: str) -> None:
    streams = joined(step, source)
    if "by:" in step:
        streams = streams.replace("by: 'builtins:max', ", "")
    (found,) = findings(streams)
    assert said in found
    assert found.startswith("app.yaml:1")


def test_a_global_table_is_no_stream() -> None:
    (found,) = findings("out: {from: airports, to: out}")
    assert "each record would be processed by each of them" in found


def test_a_table_with_a_past_is_not_global() -> None:
    sources = SOURCES.replace("global: true", "global: true, history: 1d")
    (found,) = findings("out: {from: flights, to: out}", sources)
    assert "leave out history:" in found


def test_tables_that_tell_at_commits_are_not_joined_as_tables() -> None:
    (found,) = findings(
        """\
        counted: {from: flights, steps: [count: {emit: commit}]}
        out: {from: planes, steps: [join: {with: counted, by: 'builtins:max'}], to: out}
        """
    )
    assert "give it emit: each" in found


def test_stores_of_one_name_are_found() -> None:
    (found,) = findings(
        """\
        counted: {from: flights, steps: [count: {store: planes}], to: out}
        out: {from: flights, steps: [join: {with: planes, by: 'builtins:max'}], to: out}
        """
    )
    assert "store 'planes' is declared twice" in found


def test_an_aggregate_is_a_table_and_its_view_needs_no_step_of_its_own() -> None:
    graph = graph_of(
        """\
        popular: {from: clicks, steps: [count: {}, filter: 'builtins:bool']}
        out: {from: flights, steps: [join: {with: popular, by: 'builtins:max'}], to: out}
        """
    )
    (part,) = graph.sub_topologies
    names = [node.name for node in nodes_of(part)]
    assert not any("filter" in name for name in names)
    assert [store.name for store in part.stores] == ["popular.count"]


def test_what_is_joined_is_one_sub_topology_and_a_global_table_is_in_none() -> None:
    graph = graph_of(
        """\
        out: {from: flights, steps: [join: {with: planes, by: 'builtins:max'}], to: out}
        where: {from: clicks, steps: [join: {with: airports, by: 'builtins:max'}], to: where}
        """
    )
    assert [sorted(s.topic for s in p.sources) for p in graph.sub_topologies] == [
        ["flights", "planes"],
        ["clicks"],
    ]
    assert [table.topic for table in graph.global_tables] == ["airports"]
    assert "airports" not in graph.source_topics
    allowed = [str(a) for a in topic_access(graph, graph.source_topics, [])]
    assert "Topic airports: Read" in allowed


def test_tables_and_topics_on_the_way_are_read_from_their_beginning() -> None:
    assert graph_of(REKEYED).whole_topics == {
        "planes",
        "app-tables.join-repartition",
        "app-by_tail.join-repartition",
    }


REKEYED = """\
by_tail: {from: clicks, steps: [select_key: 'builtins:str']}
tables:
  from: flights
  steps: [select_key: 'builtins:str', join: {with: planes, by: 'a.b:c'}]
  to: o
near: {from: flights, steps: [join: {with: by_tail, by: 'a.b:c', within: 1m}], to: n}
nearer: {from: flights, steps: [join: {with: by_tail, by: 'a.b:c', within: 1s}], to: m}
""".replace("a.b:c", "builtins:max")


def test_sides_with_a_new_key_go_through_topics_with_the_partitions_of_the_other_side() -> None:
    graph = graph_of(REKEYED)
    counts = {"flights": 4, "clicks": 6, "planes": 8}
    own = own_topics(graph, counts)
    assert own["app-tables.join-repartition"].partitions == 8
    assert own["app-by_tail.join-repartition"].partitions == 4
    assert sum("by_tail.join-repartition" in topic for topic in own) == 1
    joins = {
        n.join.name for p in graph.sub_topologies for n in nodes_of(p) if isinstance(n, JoinSide)
    }
    assert len(joins) == 2


def test_what_met_nothing_comes_late_so_a_step_that_goes_by_time_has_a_task_of_its_own() -> None:
    step = "join: {with: clicks, by: 'builtins:max', within: 1m, kind: KIND}"
    counted = f"out: {{from: flights, steps: [{step}, count: {{window: {{tumbling: 1h}}}}], to: o}}"
    assert len(graph_of(counted.replace("KIND", "left")).sub_topologies) == 2
    assert len(graph_of(counted.replace("KIND", "inner")).sub_topologies) == 1


def both(left: Any, right: Any) -> list[Any]:
    return [left, right]


def test_python_and_yaml_say_the_same() -> None:
    app = Topology("app")
    flights = app.stream("flights", key=str, value="json")
    clicks = app.stream("clicks", key=str, value="json")
    planes = app.table("planes", key=str, value="json")
    weather = app.table("weather", key=str, value="json", history=timedelta(days=7))
    airports = app.global_table("airports", key=str, value="json")
    near = flights.join(planes.filter(bool).named("new"), "m:f", how="left").join(weather, "m:f")
    near.join(airports, "m:f", key="m:k").named("out").to("out")
    flights.join_within(
        clicks, "m:f", timedelta(minutes=10), before="0s", grace="30s", how="outer"
    ).named("met").to("met", value="json")
    written = {
        "application": "app",
        "sources": {
            "flights": {"topic": "flights", "key": "string", "value": "json"},
            "clicks": {"topic": "clicks", "key": "string", "value": "json"},
            "planes": {"topic": "planes", "key": "string", "value": "json", "table": True},
            "weather": {
                "topic": "weather",
                "key": "string",
                "value": "json",
                "table": True,
                "history": "7d",
            },
            "airports": {"topic": "airports", "key": "string", "value": "json", "global": True},
        },
        "streams": {
            "new": {"from": "planes", "steps": [{"filter": "builtins:bool"}]},
            "out": {
                "from": "flights",
                "steps": [
                    {"join": {"with": "new", "by": "m:f", "kind": "left"}},
                    {"join": {"with": "weather", "by": "m:f"}},
                    {"join": {"with": "airports", "by": "m:f", "key": "m:k"}},
                ],
                "to": "out",
            },
            "met": {
                "from": "flights",
                "steps": [
                    {
                        "join": {
                            "with": "clicks",
                            "by": "m:f",
                            "within": "10m",
                            "before": "0s",
                            "grace": "30s",
                            "kind": "outer",
                        }
                    }
                ],
                "to": {"topic": "met", "value": "json"},
            },
        },
    }
    assert app.spec == TopologySpec.model_validate(written)


def test_joins_are_described_with_what_they_look_into() -> None:
    graph = graph_of(
        joined("with: clicks, before: 5s, after: 10m, kind: left")
        + """
more:
  from: flights
  steps:
    - join: {with: weather, by: 'builtins:max'}
    - join: {with: airports, by: 'builtins:max', kind: left}
  to: more
"""
    )
    said = describe(graph)
    assert [t["topic"] for t in said["global_tables"]] == ["airports"]
    keyed = {k["name"]: k for k in said["sub_topologies"][0]["keyed"]}
    assert keyed["more.steps[0] join(weather, builtins:max)"]["table"] == "weather"
    assert keyed["more.steps[1] join(airports, builtins:max)"]["kind"] == "left"
    assert keyed["weather: table"]["history_ms"] == 7 * 86_400_000
    assert keyed["out.steps[0] join(clicks, builtins:max)"]["before_ms"] == 5000
    assert "global table airports" in as_text(graph)
    assert as_mermaid(graph).count("-. rows .->") == 2
    (join,) = {n.join for n in nodes_of(graph.sub_topologies[0]) if isinstance(n, JoinSide)}
    assert isinstance(join, StreamJoin)
