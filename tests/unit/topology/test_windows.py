"""Windows in specs: both forms, what does not fit together, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eosframework import Stream, Topology, hopping, session, sliding, tumbling
from eosframework.errors import TopologyError
from eosframework.topology.dsl.streams import KeyedStream
from eosframework.topology.graph.description import as_text, describe
from eosframework.topology.graph.timed_topics import timed_topics
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.lint.lint_steps import arrival_findings
from eosframework.topology.loader import read_yaml, topology_schema
from eosframework.topology.lowering.lowering import lower
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.keyed_spec import WindowKind, duration_of, milliseconds, short

HEAD = """
application: w
sources: {s: {topic: in, key: string, value: json}}
streams:
  a:
    from: s
    to: out
    steps:
"""


def with_steps(*steps: str) -> Any:
    return read_yaml(HEAD + "".join(f"    - {step}\n" for step in steps), "app.yaml")


@given(st.integers(0, 10**12))
def test_a_duration_in_its_shortest_form_reads_back_as_itself(count: int) -> None:
    assert milliseconds(duration_of(short(count))) == count
    assert milliseconds(duration_of(timedelta(milliseconds=count))) == count


@pytest.mark.parametrize("wrong", ["1", "h", "-1h", "1 hour", 5, None, "0.5ms", timedelta(-1)])
def test_what_is_no_duration_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"expected"):
        duration_of(wrong)


def test_both_forms_say_the_same() -> None:
    written = with_steps(
        'sum: {of: "builtins:len", window: {hopping: 1h, every: 10m, grace: 90s, late: l}}',
        'max: {of: "builtins:len", window: {tumbling: 1d}}',
        "count: {window: {tumbling: 1d, zone: Europe/Berlin}, store: days}",
        "count: {window: {sliding: 5m}}",
        "count: {window: {session: 30m, close_when_idle: 1m}, emit: close, store: visits}",
        "count: {window: {records: 5}, ttl: 1d, store: fives}",
        'min: {of: "builtins:len", window: {records: 5, step: 2}}',
        'max: {of: "builtins:len", window: {records: 5, step: 1}, store: last}',
        'deduplicate: {within: 36h, by: "builtins:len"}',
    )
    app = Topology("w")
    stream = app.stream("in", key=str, value=dict, name="s")
    steps: list[Callable[[KeyedStream], Stream]] = [
        lambda k: k.window(hopping("1h", every="10m"), grace="90s", late="l").sum(len),
        lambda k: k.window(tumbling(days=1)).max(len),
        lambda k: k.window(tumbling("1d", zone="Europe/Berlin")).count(store="days"),
        lambda k: k.window(sliding(timedelta(minutes=5))).count(),
        lambda k: k.window(session("30m"), close_when_idle="1m").count(
            emit="close", store="visits"
        ),
        lambda k: k.window(tumbling(records=5)).count(ttl="1d", store="fives"),
        lambda k: k.window(sliding(records=5, step=2)).min(len),
        lambda k: k.window(sliding(records=5)).max(len, store="last"),
        lambda k: k.deduplicate("36h", by=len),
    ]
    for step in steps:
        stream = step(stream.group_by_key())
    stream.named("a").to("out")
    assert app.spec.streams["a"].steps == written.spec.streams["a"].steps


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ("count: {window: {}}", "exactly one kind, this one of 0"),
        ("count: {window: {tumbling: 1h, sliding: 1h}}", "exactly one kind, this one of 2"),
        ("count: {window: {hopping: 1h}}", "hopping and every go together"),
        ("count: {window: {tumbling: 1h, every: 1m}}", "hopping and every go together"),
        ("count: {window: {hopping: 365d, every: 1ms}}", "every 1ms; expected at most 10,000"),
        ("count: {window: {hopping: 1h, every: 2h}}", "there are records in no window"),
        ("count: {window: {session: 0s}}", "no size of a window"),
        ("count: {window: {tumblin: 1h}}", "did you mean 'tumbling'"),
        ("count: {window: {tumbling: 1d, zone: Mars}}", "no time zone 'Mars'"),
        ("count: {window: {tumbling: 1h, zone: UTC}}", "1h are no whole days of zone UTC"),
        ("count: {window: {session: 1d, zone: UTC}}", "zone is for tumbling windows of days"),
        ("count: {emit: close}", "needs a window"),
        ("count: {emit: commit, window: {sliding: 1s}}", "emit: each or close"),
        ("count: {window: {tumbling: 1s, close_when_idle: 1m}}", "is for emit: close"),
        ("count: {window: {tumbling: 1s, late: in}}", "is also source 's'"),
        ("count: {window: {tumbling: 1s, late: 'a b'}}", "cannot be a topic"),
        ("count: {window: {records: 5, tumbling: 1h}}", "exactly one kind, this one of 2"),
        ("count: {window: {records: 0}}", "greater than or equal to 1"),
        ("count: {window: {records: 2000000}}", "less than or equal to 1000000"),
        ("count: {window: {records: 5, step: 0}}", "greater than or equal to 1"),
        ("count: {window: {records: 5, step: 6}}", "at most the records of the window (5)"),
        ("count: {window: {records: 1001, step: 1}}", "falls into 1,001 windows"),
        ("count: {window: {sliding: 1h, step: 6}}", "step is for windows of records"),
        ("count: {window: {records: 5, every: 1h}}", "every is for windows of time"),
        ("count: {window: {records: 5, zone: UTC}}", "zone is for windows of time"),
        ("count: {window: {records: 5, grace: 1h}}", "grace is for windows of time"),
        ("count: {window: {records: 5, late: late}}", "Leave late out"),
        ("count: {window: {records: 5, close_when_idle: 1h}}", "Leave close_when_idle out"),
        ("count: {window: {records: 5}, emit: each}", "one result, with the record that completes"),
        ("count: {window: {records: 5}, emit: close}", "Leave emit out"),
        ("count: {window: {tumbling: 1h}, ttl: 1d}", "ttl is not for windows of time"),
        (
            'aggregate: {initial: "builtins:list", add: "builtins:max", merge: "builtins:max", '
            "window: {records: 3}}",
            "merge is for windows that are sessions",
        ),
        ("deduplicate: 0s", "passes every record on"),
        (
            'aggregate: {initial: "builtins:list", add: "builtins:max", window: {session: 1m}}',
            "needs merge",
        ),
        (
            'aggregate: {initial: "builtins:list", add: "builtins:max", merge: "builtins:max"}',
            "merge is for windows that are sessions",
        ),
    ],
)
def test_what_does_not_fit_together_is_found_at_its_place(step: str, complaint: str) -> None:
    (finding,) = lint(with_steps(step))
    assert complaint in finding.message
    assert finding.place.line == 9


def test_python_says_where_a_window_makes_no_sense() -> None:
    with pytest.raises(TopologyError, match=r"test_windows.py:\d+.*either a size"):
        tumbling()
    with pytest.raises(TopologyError, match=r"test_windows.py:\d+.*records in no window"):
        hopping("1m", every="2m")
    for declare in (lambda: hopping(records=5, every="1m"), lambda: session(records=5)):
        with pytest.raises(TopologyError, match=r"test_windows.py:\d+.*tumbling\(records=5\)"):
            declare()
    with pytest.raises(TopologyError, match=r"test_windows.py:\d+.*this one of both"):
        tumbling("1m", records=5)
    with pytest.raises(TopologyError, match=r"test_windows.py:\d+.*step is for windows of records"):
        sliding("1m", step=5)
    for declare in (lambda: sliding("1d", zone=1), lambda: tumbling(record=5)):
        with pytest.raises(
            TopologyError, match=r"test_windows.py:\d+.*has no option '(zone|record)'"
        ):
            declare()
    with pytest.raises(TopologyError, match=r"test_windows.py:\d+:\d+: records=0: Input should be"):
        tumbling(records=0)


def test_python_names_the_problem_of_an_aggregate_without_its_parts() -> None:
    """The declaration is a mapping with windows in it, which is no value that a user wrote."""
    counted = Topology("a").stream("in", key=str).group_by_key().window(tumbling(records=5))
    with pytest.raises(TopologyError, match=r"test_windows.py:\d+:\d+: count: emit is not stated"):
        counted.count(emit="close")


def test_a_step_that_goes_by_time_has_its_own_behind_one_that_gives_records_later() -> None:
    """In the task of the first one they would all be late."""
    twice = (
        "count: {window: {tumbling: 1m}, emit: close}",
        "count: {store: b, window: {tumbling: 1h}}",
    )
    assert len(resolve(with_steps(*twice)).sub_topologies) == 2
    assert len(resolve(with_steps("count: {emit: commit}", "deduplicate: 1h")).sub_topologies) == 2
    of_records = "count: {store: b, window: {records: 5}}"
    assert len(resolve(with_steps("count: {emit: commit}", of_records)).sub_topologies) == 1
    at_once = "count: {window: {tumbling: 1m}}", "count: {store: b, window: {tumbling: 1h}}"
    assert len(resolve(with_steps(*at_once)).sub_topologies) == 1
    assert (
        len(resolve(with_steps("count: {emit: commit}", "count: {store: b}")).sub_topologies) == 1
    )


def test_stores_and_topics_of_windows_are_in_the_graph() -> None:
    graph = resolve(with_steps("count: {window: {tumbling: 90s, late: in.late}, emit: close}"))
    (part,) = graph.sub_topologies
    (store,) = part.stores
    assert store.window is not None
    assert (store.window.kind, store.window.size_ms) == (WindowKind.TUMBLING, 90_000)
    assert store.value.name == "integer"
    assert part.sink_topics == ("in.late", "out")
    assert "keeps a.count in tumbling windows of 90s" in as_text(graph)


def test_windows_of_records_say_so_and_depend_on_no_time() -> None:
    steps = (
        'group_by: {by: "builtins:str", name: g}',
        "count: {window: {records: 5}, store: fives}",
        "count: {window: {records: 5, step: 2}, store: last}",
    )
    graph = resolve(with_steps(*steps))
    assert not timed_topics(graph)
    text = as_text(graph)
    assert "keeps fives in windows of 5 records, with" in text
    assert "keeps last in windows of 5 records every 2, with" in text
    (fives, _) = describe(graph)["sub_topologies"][1]["keyed"]
    assert (fives["window"]["records"], fives["window"]["step"]) == (5, 5)


def test_results_of_windows_of_records_are_final() -> None:
    """`distinct` takes results that do not change, and no other ones."""
    distinct = 'distinct: {by: "builtins:str", limit: 5}'
    assert not [*lint(with_steps("count: {window: {records: 5}}", distinct))]
    (finding,) = lint(with_steps("count: {window: {tumbling: 1h}}", distinct))
    assert "cannot take the changes" in finding.message


def test_after_a_repartition_topic_windows_of_records_depend_on_arrival() -> None:
    """The strict lint names the way to the order of a backfill."""
    group = 'group_by: {by: "builtins:str", name: g}'
    app = with_steps(group, "count: {window: {records: 5}}")
    messages = [finding.message for finding in arrival_findings(app, lower(app))]
    assert [m.partition(": ")[2] for m in messages] == [
        "windows of records take records as they arrive. State order: time"
    ]
    ordered = with_steps(group, "count: {window: {records: 5}, order: time}")
    assert not [*arrival_findings(ordered, lower(ordered))]
    directly = with_steps("count: {window: {records: 5}}")
    assert not [*arrival_findings(directly, lower(directly))]


def test_windows_of_a_zone_say_so() -> None:
    graph = resolve(with_steps("count: {window: {tumbling: 7d, zone: Europe/Berlin}}"))
    assert "keeps a.count in tumbling windows of 7d in Europe/Berlin" in as_text(graph)


def test_the_schema_knows_durations_and_kinds_of_windows() -> None:
    kinds = topology_schema()["$defs"]["WindowSpec"]
    assert {"required": ["session"]} in kinds["oneOf"]
    assert "pattern" in yaml.dump(kinds["properties"]["grace"])
