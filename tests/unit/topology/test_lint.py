from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.errors import TopologyError
from eosframework.topology.lint.lint_pass import lint, lint_strictly
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import LoadedApp, Severity
from eosframework.topology.spec.step_spec import OPERATORS
from eosframework.topology.spec.topology_spec import TopologySpec
from tests.unit.topology.apps import read

SOURCES = "application: a\nsources:\n  s: {topic: s}\n"


def rules(text: str) -> list[tuple[int, int, str]]:
    return [(f.place.line, f.place.column, f.rule) for f in lint(read(text))]


def messages(text: str) -> str:
    return "\n".join(str(finding) for finding in lint(read(text)))


EVERYTHING_WRONG = """\
application: My flights
extra: 3
sources:
  flights: {topic: flights.raw, key: strin, value: json, timestmp: "m:departure"}
  other: {topic: flights.raw, value: string, on_error: {dead_letter: flights.raw}}
streams:
  late:
    from: flihgts
    steps:
      - filtr: "m:is_late"
      - map_values: "m:shap"
      - peek: "m:NOT_CALLABLE"
      - {filter: "m:is_late", peek: "m:shape"}
    on_error: dead_letter
    to: [a, a, {topic: b, topic_from: "m:x"}, "b ad", {topc: x}]
  late:
    from: flights
  x: {from: y}
  y: {from: [x, flights]}
  z:
    steps: 5
  flights: {from: other, branch: {q: "nomod:f", default: 5}}
"""


def test_every_mistake_is_found_at_once_with_its_line() -> None:
    found = {(line, rule) for line, _, rule in rules(EVERYTHING_WRONG)}
    assert found >= {
        (1, "name"),
        (2, "unknown-key"),
        (4, "serde"),
        (4, "unknown-key"),
        (5, "source-twice"),
        (5, "dead-letter"),
        (8, "unknown-stream"),
        (10, "unknown-key"),
        (11, "import"),
        (12, "not-callable"),
        (13, "invalid-value"),
        (14, "invalid-value"),
        (15, "duplicate-sink"),
        (15, "invalid-value"),
        (15, "topic-name"),
        (16, "duplicate-key"),
        (18, "cycle"),
        (19, "cycle"),
        (21, "missing-key"),
        (21, "invalid-value"),
        (22, "duplicate-name"),
        (22, "invalid-value"),
    }


@pytest.mark.parametrize(
    "function",
    ["m:is_late_soon", "m:all_that_are_late", "m:asynchronous_check", "m:partly_applied"],
)
@pytest.mark.parametrize("operator", ["filter", "map_values", "flat_map", "peek"])
def test_a_function_that_returns_a_coroutine_is_refused(operator: str, function: str) -> None:
    """A coroutine counts as true, so a filter let every record pass."""
    stream = f'streams:\n  x: {{from: s, steps: [{{{operator}: "{function}"}}], to: x}}\n'
    found = messages(SOURCES + stream)
    assert "asynchronous" in found
    assert "is declared with `async def`" in found
    assert function.removeprefix("m:") in found


def test_the_column_is_that_of_the_mistake() -> None:
    lines = EVERYTHING_WRONG.splitlines()
    starts = {
        rule: lines[line - 1][column - 1 :]
        for line, column, rule in rules(EVERYTHING_WRONG)
        if line in (8, 10, 11)
    }
    assert starts["unknown-stream"] == "flihgts"
    assert starts["unknown-key"].startswith("filtr")
    assert starts["import"].startswith('"m:shap"')


def test_resolving_refuses_with_all_findings() -> None:
    app = read(EVERYTHING_WRONG)
    errors = [f for f in lint(app) if f.severity is Severity.ERROR]
    with pytest.raises(TopologyError) as raised:
        resolve(app)
    assert all(str(finding) in str(raised.value) for finding in errors)


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ("x: {from: t}", "4:21: unknown-stream: stream 'x' reads 't'"),
        ("x: {from: [s, s], to: x}", "reads 's' twice"),
        ("x: {from: x, to: x}", "stream 'x' reads its own output; "),
        ('x: {from: s, steps: [{filtr: "m:is_late"}]}', "did you mean 'filter'"),
        ('x: {from: s, steps: [{filter: "m:is_lat"}], to: x}', "did you mean 'is_late'"),
        ('x: {from: s, steps: ["m:is_late"], to: x}', "found 'tests.*expected a map"),
        ("x: {from: s, to: [t, {topic: t, name: u}]}", "two sinks to topic 't'"),
        ("x: {from: s, to: [{topic: t, name: n}, {topic: u, name: n}]}", "two sinks named 'n'"),
        ("x: {from: s, to: t, on_error: {dead_letter: s}}", "is also source 's'"),
        ("x: {from: s, to: t, on_error: {dead_letter: }}", "dead_letter has no topic"),
        ("x: {from: s, to: t, on_error: retry}", "'retry' is no policy; expected fail, skip"),
        ("x: {from: s, to: a-control}", "an internal topic of this application .control."),
        ("x: {from: s, to: '..'}", "'..' cannot be a topic"),
        ("X: {from: s, to: t}", "stream name 'X' contains 'X'"),
        ("x: {from: s, to: {topics: [a], topic: b}}", "topics goes with topic_from"),
        ("x: {from: s, to: {topic: t, value: jsn}}", "no serde 'jsn'"),
        ('x: {from: s, branch: {s: "m:is_late"}}', "branch 's' has the name of a source"),
    ],
)
def test_a_mistake_is_named_with_what_was_expected(streams: str, message: str) -> None:
    text = f"{SOURCES}streams: {{{streams}}}"
    found = lint(read(text))
    assert any(f.severity is Severity.ERROR for f in found)
    assert re.search(message, "\n".join(str(finding) for finding in found))


def grouped(stream: str, group: str, store: str) -> str:
    group_by = f"group_by: {{by: 'builtins:str', key: string, name: {group}}}"
    return (
        f"{stream}: {{from: s, steps: [{{{group_by}}}, count: {{store: {store}}}], to: {stream}}}"
    )


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        (
            ["x: {from: s, to: [a.b, a_b]}"],
            "topics 'a.b' and 'a_b' differ in '.' and '_' only, .* Kafka's metrics",
        ),
        (["x: {from: s, to: a-x-changelog}"], "internal topic of this application .changelog."),
        (["x: {from: s, to: a-x.10s-retry}"], "internal topic of this application .retry."),
        (
            [grouped("x", "g", "c.d"), grouped("y", "h", "c_d")],
            "topics 'a-c.d-changelog' and 'a-c_d-changelog' differ",
        ),
        (
            [grouped("x", "g", "c"), grouped("y", "g", "d")],
            "internal topic 'a-g-repartition' is made for two parts.* with name:",
        ),
        ([grouped("x", "g-h", "c")], "group_by name 'g-h' contains '-'"),
    ],
)
def test_names_of_topics_that_collide_are_refused(streams: list[str], message: str) -> None:
    assert re.search(message, messages(f"{SOURCES}streams:\n  " + "\n  ".join(streams)))


def test_names_of_topics_that_only_look_alike_are_free() -> None:
    streams = [
        "x: {from: s, to: [a-b-changelogs, a-retry, b-x-changelog, a-b-x-changelog, a-x-retry]}",
        grouped("y", "x", "x"),
        grouped("z", "z", "z"),
    ]
    found = messages(f"{SOURCES}streams:\n  " + "\n  ".join(streams))
    assert "topic-name" not in found
    assert found.count("reserved-topic") == 2
    assert "'b-x-changelog' has the name of an internal topic of application 'b'" in found


def test_an_internal_topic_with_a_name_that_is_too_long_is_refused() -> None:
    text = SOURCES.replace("application: a", f"application: {60 * 'a'}")
    found = messages(f"{text}streams:\n  {grouped('x', 'g', 200 * 'c')}")
    assert "has a name of 271 characters; Kafka allows 249" in found


@pytest.mark.parametrize(
    ("streams", "rule"),
    [
        ('x: {from: s, steps: [{filter: "m:is_late"}]}', "no-sink"),
        ('x: {from: s, branch: {late: "m:is_late"}}', "no-sink"),
        ("x: {from: s, to: s}", "loop"),
        ('x: {from: s, to: {topic_from: "m:by_carrier", topics: [s]}}', "loop"),
    ],
)
def test_what_may_be_meant_is_a_warning(streams: str, rule: str) -> None:
    app = read(f"{SOURCES}streams: {{{streams}}}")
    found = lint(app)
    assert [(f.rule, f.severity) for f in found] == [(rule, Severity.WARNING)]
    resolve(app)


def test_a_stream_that_only_looks_needs_no_sink() -> None:
    assert rules(f'{SOURCES}streams: {{x: {{from: s, steps: [{{peek: "m:shape"}}]}}}}') == []


def test_a_source_that_nothing_reads_is_a_warning_and_not_consumed() -> None:
    app = read(
        "application: a\nsources: {s: {topic: s}, t: {topic: t}}\nstreams: {x: {from: s, to: u}}"
    )
    assert [f.rule for f in lint(app)] == ["unread-source"]
    assert [s.topic for part in resolve(app).sub_topologies for s in part.sources] == ["s"]


def test_two_sub_topologies_never_share_ids() -> None:
    text = """
application: a
sources: {s: {topic: s, name: x}, t: {topic: t}}
streams: {y: {from: s, to: o}, x: {from: t, to: p}}
"""
    assert "two sub-topologies named 'x'" in messages(text)


def test_a_sub_topology_has_one_name() -> None:
    text = """
application: a
sources: {s: {topic: s, name: x}, t: {topic: t, name: y}}
streams: {z: {from: [s, t], to: o}}
"""
    assert "different names (s: 'x', t: 'y')" in messages(text)


def test_a_sink_behind_different_serdes_has_to_state_its_own() -> None:
    text = """
application: a
sources: {s: {topic: s, value: json}, t: {topic: t}}
streams: {z: {from: [s, t], to: o}}
"""
    assert "its sources have different ones (bytes, json); state value:" in messages(text)
    assert rules(text.replace("to: o", "to: {topic: o, value: json}")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is not a map"),
        ("- a", "the file is not a map"),
        ("a: [", "app.yaml:1:5: yaml: not valid YAML"),
        ("a: *b", "app.yaml:1:4: yaml: not valid YAML: found undefined alias"),
        ("a: &x [*x]", "app.yaml:1:4: yaml: not valid YAML: an alias contains itself"),
        ("a: !!python/name:os.system x", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("a: \x01", "not valid YAML"),
        ("application: a", "'sources' is missing"),
        ("application: 5\nsources: {}\nstreams: []", "application: found 5; expected text"),
    ],
)
def test_a_file_that_is_no_topology_is_told_so(text: str, message: str) -> None:
    found = lint(read_yaml(text, "app.yaml"))
    assert message in "\n".join(str(finding) for finding in found)


OPERANDS: dict[str, Any] = {
    "count": {},
    "aggregate": {"initial": "builtins:dict", "add": "builtins:max", "emit": "commit"},
    "sum": {"of": "builtins:len", "window": {"hopping": "1h", "every": "10m", "grace": "90s"}},
    "max": {"of": "builtins:len", "window": {"session": "500ms", "late": "l"}, "emit": "close"},
    "deduplicate": "36h",
    "cogroup": {"initial": "builtins:dict", "add": ["builtins:max", "builtins:min"]},
    "top": {"n": 3, "by": "builtins:len"},
    "bottom": {"n": 3, "by": "builtins:len"},
    "distinct": {"by": "builtins:str", "limit": 3},
    "call_once": {"call": "builtins:id", "on_doubt": "retry"},
    "join": {"with": "b", "by": "builtins:max", "within": "10m", "kind": "outer"},
}
operators = st.sampled_from(OPERATORS)
words = st.sampled_from(
    "application sources streams from steps to branch on_error default s t x topic topic_from "
    "topics dead_letter skip json table global history with by within 1h "
    f"{' '.join(OPERATORS)}".split()
)
scalars = words | st.none() | st.integers(0, 3) | st.booleans()
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=20,
)
streams = st.dictionaries(words, st.dictionaries(words, trees, max_size=4), max_size=4)


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({"sources": trees | streams, "streams": trees | streams}))
def test_whatever_a_file_holds_it_gets_findings_and_no_traceback(data: dict[str, Any]) -> None:
    app = read_yaml(yaml.dump({"application": "a", **data}), "app.yaml")
    found = lint(app)
    if not any(f.severity is Severity.ERROR for f in found):
        resolve(app)


@given(st.text(max_size=60))
def test_any_text_gets_findings_and_no_traceback(text: str) -> None:
    assert lint(read_yaml(text, "app.yaml"))


names = st.sampled_from("abcdefgh")
specs = st.fixed_dictionaries(
    {
        "application": names,
        "sources": st.dictionaries(
            names,
            st.fixed_dictionaries(
                {"topic": names, "on_error": st.sampled_from(["skip", {"dead_letter": "d"}])}
            ),
        ),
        "streams": st.dictionaries(
            names,
            st.fixed_dictionaries(
                {
                    "from": names | st.lists(names, min_size=1),
                    "steps": st.lists(
                        st.builds(lambda op: {op: OPERANDS.get(op, "builtins:id")}, operators)
                    ),
                    "to": names | st.lists(names),
                }
            ),
        ),
    }
)


@given(specs)
def test_a_spec_written_as_yaml_reads_back_as_itself(data: dict[str, Any]) -> None:
    spec = TopologySpec.model_validate(data)
    written = yaml.dump(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    app = read_yaml(written, "app.yaml")
    assert (app.spec, app.problems) == (spec, ())
    assert isinstance(app, LoadedApp)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ("deduplicate: {within: 1h, order: time}", ["order"]),
        ("deduplicate: {within: 1h, order: arrival}", ["order"]),
        ("count: {order: time}", ["order"]),
        ("deduplicate: 1h", []),
        (
            "group_by: {by: 'builtins:str', key: string}}, {deduplicate: {within: 1h, order: time}",
            [],
        ),
        ("group_by: {by: 'builtins:str', key: string}}, {count: {order: time}", []),
    ],
)
def test_an_order_without_a_repartition_topic_is_a_warning(steps: str, found: list[str]) -> None:
    text = f"{SOURCES}streams:\n  x: {{from: s, steps: [{{{steps}}}], to: t}}\n"
    warnings = [f for f in lint(read(text)) if f.rule == "order"]
    assert [f.rule for f in warnings] == found
    assert all(f.severity is Severity.WARNING for f in warnings)


GROUPED = "{group_by: {by: 'builtins:str', key: string}}, "
ROWS = (
    "application: a\nsources:\n"
    "  s: {topic: s, key: string, value: json}\n"
    "  u: {topic: u, key: string, value: json}\n"
    "  old: {topic: old, key: string, value: json, history: 1h}\n"
    "  now: {topic: now, key: string, value: json, table: true}\n"
    "  all: {topic: all, key: string, value: json, global: true}\n"
)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("count: {emit: commit}", "emit: commit sends"),
        (
            "count: {window: {tumbling: 1h, close_when_idle: 1m}, emit: close}",
            "close_when_idle closes",
        ),
        ("join: {with: all, by: 'builtins:max'}", "reads global table 'all' by itself"),
        ("count: {}", None),
        ("deduplicate: 1h", None),
        ("join: {with: now, by: 'builtins:max'}", None),
        (f"{GROUPED}{{count: {{}}", "emit: each sends"),
        (f"{GROUPED}{{count: {{order: time}}", None),
        (f"{GROUPED}{{count: {{window: {{tumbling: 1h}}, emit: close}}", None),
        (f"{GROUPED}{{count: {{window: {{session: 1h}}, emit: close}}", None),
        (
            f"{GROUPED}{{count: {{window: {{session: 1h}}, emit: close, order: arrival}}",
            "order: arrival folds",
        ),
        (
            f"{GROUPED}{{reduce: {{add: 'builtins:max', window: {{tumbling: 1h}}, emit: close}}",
            "its function gets records as they arrive",
        ),
        (f"{GROUPED}{{deduplicate: 1h", None),
        (f"{GROUPED}{{deduplicate: {{within: 1h, order: arrival}}", "the first record that"),
        (f"{GROUPED}{{join: {{with: old, by: 'builtins:max'}}", None),
        (f"{GROUPED}{{join: {{with: old, by: 'builtins:max', order: arrival}}", "have arrived"),
        (f"{GROUPED}{{join: {{with: now, by: 'builtins:max'}}", "the row of 'now' that has"),
        (f"{GROUPED}{{join: {{with: now, by: 'builtins:max', order: time}}", None),
    ],
)
def test_strict_lint_names_what_depends_on_arrival(steps: str, reason: str | None) -> None:
    text = f"{ROWS}streams:\n  x: {{from: s, steps: [{{{steps}}}], to: t}}\n"
    app = read(text.replace("[{{group_by", "[{group_by"))
    found = [f for f in lint_strictly(app) if f.rule == "arrival"]
    assert not any(f.rule == "arrival" for f in lint(app))
    assert [reason in f.message for f in found if reason] == ([True] if reason else []), found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("join", "error"),
    [
        ("{with: all, by: 'builtins:max', order: time}", "states order: for global table 'all'"),
        ("{with: counts, by: 'builtins:max', order: time}", "whose rows are aggregates"),
        ("{with: u, by: 'builtins:max', within: 1h, order: time}", "order is for joins with a"),
    ],
)
def test_an_order_that_a_join_cannot_have_is_refused(join: str, error: str) -> None:
    text = (
        f"{ROWS}streams:\n"
        f"  counts: {{from: u, steps: [{{count: {{}}}}], to: c}}\n"
        f"  x: {{from: s, steps: [{{join: {join}}}], to: t}}\n"
    )
    assert any(error in f.message for f in lint(read(text)) if f.severity is Severity.ERROR)
