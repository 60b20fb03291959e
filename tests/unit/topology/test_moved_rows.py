"""Aggregates under a new key of what replaces earlier records are refused, with their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eosframework import Topology, tumbling
from eosframework.errors import TopologyError
from eosframework.topology.dsl.streams import Stream
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import Severity
from tests.unit.topology.apps import HERE, by_carrier, is_late, read, shape

SOURCES = """\
application: a
sources:
  events: {topic: events, key: string, value: json}
  planes: {topic: planes, key: string, value: json, table: true}
  models: {topic: models, key: string, value: json, table: true}
  airports: {topic: airports, key: string, value: json, global: true}
streams:
"""
GROUP = '{group_by: {by: "m:by_carrier", key: string}}'
MOVED = '{select_key: "m:by_carrier"}'
WINDOW = "window: {tumbling: 1h}"
JOIN = 'join: {with: models, by: "m:shape"}'


def found(streams: str) -> list[tuple[int, int, str]]:
    """Line and column within the streams, and the message, of each finding of the rule."""
    first = SOURCES.count("\n")
    findings = lint(read(SOURCES + streams))
    assert {f.rule for f in findings if f.severity is Severity.ERROR} <= {"moved-row"}
    return [
        (f.place.line - first, f.place.column, f.message) for f in findings if f.rule == "moved-row"
    ]


def of(source: str, *steps: str) -> str:
    return f"  x:\n    from: {source}\n    steps: [{', '.join(steps)}]\n    to: out\n"


FOLDS = {
    "count": "{count: {}}",
    "sum": '{sum: "m:shape"}',
    "min": '{min: "m:shape"}',
    "max": '{max: "m:shape"}',
    "reduce": '{reduce: "m:shape"}',
    "aggregate": '{aggregate: {initial: "m:shape", add: "m:shape"}}',
    "window": f"{{count: {{{WINDOW}}}}}",
}


@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_a_table_under_a_new_key_is_not_folded(fold: str) -> None:
    streams = of("planes", MOVED, fold)
    [(line, column, message)] = found(streams)
    written = streams.replace('"m:', f'"{HERE}:').splitlines()[line - 1]
    assert fold.replace('"m:', f'"{HERE}:').endswith(written[column - 1 :].removesuffix("]"))
    assert "folds the changes of table 'planes' under another key" in message
    assert "counts in both groups" in message


TABLES = {
    "filtered": of(
        "planes", '{filter: "m:is_late"}', '{map_values: "m:shape"}', MOVED, "{count: {}}"
    ),
    "peeked": of("planes", '{peek: "m:shape"}', GROUP, "{count: {}}"),
    "select_key": of("planes", '{select_key: "m:shape"}', "{count: {}}"),
    "map": of("planes", '{map: "m:shape"}', "{count: {}}"),
    "looked_up": of(
        "planes", '{join: {with: airports, by: "m:shape", key: "m:shape"}}', GROUP, "{count: {}}"
    ),
    "joined": of("planes", f"{{{JOIN}}}", MOVED, "{count: {}}"),
    "counted": of("events", "{count: {}}", MOVED, '{sum: "m:shape"}'),
    "named": of("planes", '{peek: "m:shape"}')
    + f"  y: {{from: x, steps: [{GROUP}]}}\n  z: {{from: y, steps: [count: {{}}]}}\n",
    "branched": '  y: {from: planes, branch: {late: "m:is_late"}}\n'
    + of("late", GROUP, "{count: {}}"),
    "merged": of("[events, planes]", GROUP, "{count: {}}"),
    "windows": of("events", f"{{count: {{{WINDOW}}}}}", GROUP, '{sum: "m:shape"}'),
}


@pytest.mark.parametrize("streams", TABLES.values(), ids=TABLES)
def test_nor_is_what_gives_changes_of_any_kind(streams: str) -> None:
    assert len(found(streams)) == 1


RIGHT = {
    "own_key": of("planes", "{count: {}}"),
    "stream": of("events", GROUP, "{count: {}}"),
    "enriched": of("events", '{join: {with: planes, by: "m:shape"}}', GROUP, "{count: {}}"),
    "own_records": of("planes", '{flat_map: "m:shape"}', GROUP, "{count: {}}"),
    "processed": of("planes", '{process: "m:shape"}', GROUP, "{count: {}}"),
    "closed": of("events", f"{{count: {{{WINDOW}, emit: close}}}}", GROUP, '{sum: "m:shape"}'),
    "greatest_window": of("events", f"{{count: {{{WINDOW}}}}}", GROUP, '{max: "m:shape"}'),
    "joined": of("planes", MOVED, '{join: {with: models, by: "m:shape"}}'),
}


@pytest.mark.parametrize("streams", RIGHT.values(), ids=RIGHT)
def test_what_counts_once_is_let_pass(streams: str) -> None:
    assert found(streams) == []


CALLS: dict[str, Callable[[Topology, Stream], Any]] = {
    "view": lambda app, table: (
        table.filter(is_late).select_key(by_carrier).map_values(shape).group_by_key().count()
    ),
    "peeked": lambda app, table: table.peek(shape).group_by(by_carrier).count(),
    "rekeyed": lambda app, table: table.select_key(by_carrier).group_by_key().count(),
    "window": lambda app, table: (
        table.select_key(by_carrier).group_by_key().window(tumbling(hours=1)).count()
    ),
    "twice": lambda app, table: (
        app.stream("e", key=str).group_by_key().count().select_key(shape).group_by_key().sum(shape)
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_python_says_where_it_was_called(call: Callable[[Topology, Stream], Any]) -> None:
    app = Topology("a")
    table = app.table("planes", key=str, value=dict)
    call(app, table).to("out")
    with pytest.raises(TopologyError, match=r"test_moved_rows\.py:\d+.*moved-row: .* another key"):
        resolve(app.loaded())
