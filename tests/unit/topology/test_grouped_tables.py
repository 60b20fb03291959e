"""What may follow group_by of a table, and what is refused with the line to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eosframework import Topology, tumbling
from eosframework.errors import TopologyError
from eosframework.topology.dsl.streams import Stream
from eosframework.topology.graph.description import as_text, describe
from eosframework.topology.graph.graph import Aggregate, Graph, Sink, TableGroup
from eosframework.topology.graph.walk import nodes_of
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import Severity
from tests.unit.topology.apps import by_carrier, is_late, read, shape

SOURCES = """\
application: a
sources:
  events: {topic: events, key: string, value: json}
  planes: {topic: planes, key: string, value: json, table: true}
  models: {topic: models, key: string, value: json, table: true}
  brief: {topic: brief, key: string, value: json, table: true, ttl: 1h}
streams:
"""
GROUP = '{group_by: {by: "m:by_carrier", key: string}}'
ADD = 'add: "m:shape"'
SUBTRACT = 'subtract: "m:shape"'


def of(source: str, *steps: str, to: str = "to: out") -> str:
    return f"  x:\n    from: {source}\n    steps: [{', '.join(steps)}]\n    {to}\n"


FITS = {
    "count": of("planes", GROUP, "{count: {}}"),
    "sum": of("planes", GROUP, '{sum: "m:shape"}'),
    "reduce": of("planes", GROUP, f"{{reduce: {{{ADD}, {SUBTRACT}}}}}"),
    "aggregate": of("planes", GROUP, f'{{aggregate: {{initial: "m:shape", {ADD}, {SUBTRACT}}}}}'),
    "view": of("planes", '{filter: "m:is_late"}', '{map_values: "m:shape"}', GROUP, "{count: {}}"),
    "joined": of("planes", '{join: {with: models, by: "m:shape"}}', GROUP, "{count: {}}"),
    "counted": of("events", "{count: {}}", GROUP, '{sum: "m:shape"}'),
    "again": of(
        "planes", GROUP, "{count: {}}", '{group_by: {by: "m:shape", name: y}}', '{sum: "m:shape"}'
    ),
    "table": of("planes", GROUP, "{count: {}}")
    + '  y: {from: models, steps: [{join: {with: x, by: "m:shape"}}], to: joined}\n',
    "commit": of("planes", GROUP, "{count: {emit: commit}}"),
    "named": f"  g: {{from: planes, steps: [{GROUP}]}}\n"
    + "  x: {from: g, steps: [count: {}], to: out}\n"
    + '  y: {from: g, steps: [{sum: "m:shape"}], to: sums}\n',
}


def findings(streams: str) -> list[tuple[str, str]]:
    return [(f.rule, f.message) for f in lint(read(SOURCES + streams)) if f.rule != "unread-source"]


@pytest.mark.parametrize("streams", FITS.values(), ids=FITS)
def test_tables_are_grouped(streams: str) -> None:
    assert findings(streams) == []
    graph = resolve(read(SOURCES + streams))
    nodes = [node for part in graph.sub_topologies for node in nodes_of(part)]
    assert any(isinstance(node, TableGroup) for node in nodes)
    assert any(isinstance(node, Aggregate) and node.of_table for node in nodes)


REFUSED = {
    "max": (
        of("planes", GROUP, '{max: "m:shape"}'),
        "max of table 'planes' cannot take a row back",
    ),
    "min": (of("planes", GROUP, '{min: "m:shape"}'), "write aggregate: {initial: module:function"),
    "window": (of("planes", GROUP, "{count: {window: {tumbling: 1h}}}"), "leave window: out"),
    "window of records": (
        of("planes", GROUP, "{count: {window: {records: 5}}}"),
        "the rows of table 'planes' have no order; leave window: out",
    ),
    "ttl": (of("planes", GROUP, "{count: {ttl: 1h}}"), "leave ttl: out"),
    "reduce": (of("planes", GROUP, '{reduce: "m:shape"}'), "write subtract: module:function"),
    "aggregate": (
        of("planes", GROUP, f'{{aggregate: {{initial: "m:shape", {ADD}}}}}'),
        "write subtract: module:function",
    ),
    "process": (
        of("planes", GROUP, '{process: "m:shape"}'),
        "Write select_key in place of group_by",
    ),
    "filter": (
        of("planes", GROUP, '{filter: "m:shape"}', "{count: {}}"),
        "filter follows group_by",
    ),
    "deduplicate": (of("planes", GROUP, "{deduplicate: 1h}"), "deduplicate follows group_by"),
    "sink": (of("planes", GROUP), "ends with the groups of table 'planes'"),
    "branch": (
        of("planes", GROUP, to='branch: {late: "m:is_late"}'),
        "ends with the groups of table 'planes'",
    ),
    "joined": (
        of("planes", GROUP, to="")
        + '  y: {from: models, steps: [{join: {with: x, by: "m:shape", within: 1h}}], to: o}\n',
        "join what an aggregate of it gives",
    ),
    "merged": (
        of("planes", GROUP, to="") + "  y: {from: [x, events], steps: [count: {}], to: o}\n",
        "group each alone",
    ),
    "expiring": (of("brief", GROUP, "{count: {}}"), "rows of 'brief' expire"),
    "late": (
        "  c: {from: events, steps: [count: {emit: commit}]}\n" + of("c", GROUP, "{count: {}}"),
        "'c' emits at commits only; give it emit: each",
    ),
    "no_table": (
        of("events", GROUP, f"{{reduce: {{{ADD}, {SUBTRACT}}}}}"),
        "does not follow group_by of a table; leave subtract out",
    ),
    "skips": (
        of("planes", GROUP, "{count: {}}", to="to: out\n    on_error: skip"),
        "Drop such rows in a filter before group_by",
    ),
}


@pytest.mark.parametrize(("streams", "reason"), REFUSED.values(), ids=REFUSED)
def test_one_message_says_what_cannot_follow(streams: str, reason: str) -> None:
    found = [message for rule, message in findings(streams) if rule == "grouped-table"]
    assert len(found) == 1, found
    assert reason in found[0]


def test_rows_left_out_are_a_warning() -> None:
    app = read(SOURCES + REFUSED["skips"][0])
    assert [f.severity for f in lint(app) if f.rule == "grouped-table"] == [Severity.WARNING]


CALLS: dict[str, Callable[[Stream], Any]] = {
    "max": lambda table: table.group_by(by_carrier).max(shape),
    "window": lambda table: table.group_by(by_carrier).window(tumbling(hours=1)).count(),
    "aggregate": lambda table: table.group_by(by_carrier).aggregate(shape, shape),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_python_says_where_it_was_called(call: Callable[[Stream], Any]) -> None:
    app = Topology("a")
    call(app.table("planes", key=str, value=dict)).to("out")
    with pytest.raises(TopologyError, match=r"test_grouped_tables\.py:\d+.*grouped-table: "):
        resolve(app.loaded())


def grouped() -> Graph:
    app = Topology("a")
    table = app.table("planes", key=str, value=dict).filter(is_late)
    table.group_by(by_carrier, key=str).count(store="n").to("out")
    return resolve(app.loaded())


def test_a_description_shows_the_groups() -> None:
    [head, _] = describe(grouped())["sub_topologies"]
    [group] = [one for one in head["keyed"] if one["operator"] == "group_by"]
    assert group["functions"] == {"by": "tests.unit.topology.apps:by_carrier"}
    assert [sink["value"] for sink in head["sinks"]] == ["change(json)"]
    assert "group_by(tests.unit.topology.apps:by_carrier)" in as_text(grouped())


def test_the_sink_of_a_group_writes_changes() -> None:
    sinks = [n for part in grouped().sub_topologies for n in nodes_of(part) if isinstance(n, Sink)]
    assert [sink.value.name for sink in sinks if sink.topic != "out"] == ["change(json)"]
