"""What is declared to expire: both forms, and where that makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework import Topology, tumbling
from eosframework.errors import TopologyError
from eosframework.topology.graph.description import as_text, describe
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

HEAD = """
application: shop
sources:
  rows: {topic: rows, key: string, value: string, table: true, ttl: 30d}
  others: {topic: others, key: string, value: string, table: true}
  clicks: {topic: clicks, key: string, value: string}
streams:
"""


def messages(text: str) -> list[str]:
    return [str(finding) for finding in lint(read_yaml(text, "app.yaml"))]


def seen(record: Any, context: Any) -> None:
    context.store("seen").put(record.key, {})


def test_both_forms_say_the_same_and_the_graph_has_it() -> None:
    written = read_yaml(
        HEAD
        + f"""
  found: {{from: clicks, steps: [join: {{with: rows, by: "builtins:max"}}], to: found}}
  counted: {{from: clicks, steps: [count: {{ttl: 1h, emit: commit}}], to: counts}}
  kept:
    from: clicks
    steps:
      - process: {{call: "{__name__}:seen", stores: {{seen: {{value: json, ttl: 36h}}}}}}
    to: {{topic: kept, value: json}}
""",
        "app.yaml",
    )
    app = Topology("shop")
    rows = app.table("rows", key=str, value=str, ttl="30d")
    app.table("others", key=str, value=str)
    clicks = app.stream("clicks", key=str, value=str)
    found = clicks.join(rows, "builtins:max")
    clicks.group_by_key().count(ttl="1h", emit="commit").named("counted").to("counts")
    found.named("found").to("found")
    clicks.process(seen, stores={"seen": {"value": dict, "ttl": "36h"}}).named("kept").to(
        "kept", value="json"
    )
    assert app.spec == written.spec

    graph = resolve(written)
    hour = 3_600_000
    kept = {s.name: s.ttl_ms for part in graph.sub_topologies for s in part.stores}
    assert kept == {"rows": 720 * hour, "counted.count": hour, "kept.seen": 36 * hour}
    assert "keeps counted.count for 1h" in as_text(graph, describe(graph))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ttl: 30d", "ttl: 0s", "ttl: 0 keeps nothing"),
        ("ttl: 30d", "ttl: 1 day", "is no duration"),
        ("ttl: 30d", f"ttl: {400 * '9'}d", "has at most 999,999,999 days"),
        ("ttl: 30d", "ttl: 1d, history: 2d", "leave out ttl, or history"),
        ("table: true, ttl: 30d", "global: true, ttl: 1d", "leave out global"),
        ("table: true, ttl: 30d", "ttl: 1d", "state table: true"),
    ],
)
def test_a_ttl_that_makes_no_sense_is_found_at_its_source(old: str, new: str, said: str) -> None:
    (found,) = messages(HEAD.replace(old, new) + "  out: {from: clicks, to: out}\n")
    assert said.lower() in found.lower()
    assert found.startswith("app.yaml:4")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("count: {ttl: 1h, window: {tumbling: 1h}}", "Leave ttl out, or window"),
        ("deduplicate: {within: 1h, ttl: 1h}", "ttl"),
        ("join: {with: others, by: 'builtins:max', ttl: 1h}", "ttl"),
    ],
)
def test_a_step_whose_state_ends_by_itself_has_no_ttl(step: str, said: str) -> None:
    (found,) = messages(HEAD + f"  out:\n    from: clicks\n    steps: [{step}]\n    to: out\n")
    assert said in found


def test_tables_of_which_rows_expire_are_not_joined_as_tables() -> None:
    join = "{from: FROM, steps: [join: {with: WITH, by: 'builtins:max'}], to: out}"
    for left, right, named in (
        ("rows", "others", "rows"),
        ("others", "rows", "rows"),
        ("others", "counted", "counted"),
    ):
        streams = "  counted: {from: clicks, steps: [count: {ttl: 1h}]}\n"
        streams += f"  out: {join.replace('FROM', left).replace('WITH', right)}\n"
        (found,) = [m for m in messages(HEAD + streams) if "leave out its ttl" in m]
        assert f"rows of '{named}' expire without a change" in found
    looked = f"  out: {join.replace('FROM', 'clicks').replace('WITH', 'rows')}\n"
    assert not any("ttl" in message for message in messages(HEAD + looked))


def test_python_says_where_a_ttl_makes_no_sense() -> None:
    app = Topology("shop")
    clicks = app.stream("clicks", key=str, value=str).group_by_key()
    with pytest.raises(TopologyError, match=r"ttl: 0 keeps nothing"):
        clicks.count(ttl="0s")
    with pytest.raises(TopologyError, match=r"ttl is not for windows of time"):
        clicks.window(tumbling("1h")).count(ttl="1h")
    with pytest.raises(TopologyError, match=r"leave out ttl, or history"):
        app.table("rows", history="1d", ttl="1d")
