"""A grouped table is another owner of its store than a stream, and its functions are its own."""

from __future__ import annotations

import pytest

from eosframework.application.topology_changes import refuse_changes, topology_changes
from eosframework.errors import StartRefused
from eosframework.topology.evolution import Verdict
from tests.unit.topology.evolution.test_changes import (
    F,
    after,
    changes,
    graph_of,
    kinds,
    topics_of,
)

STREAM = f"""
application: a
sources:
  numbers: {{topic: in, key: string, value: json}}
streams:
  totals:
    from: numbers
    steps:
      - group_by: {{by: "{F}:tens", key: string, value: json}}
      - count: {{store: sums}}
    to: totals
"""
TABLE = STREAM.replace("value: json}\nstreams", "value: json, table: true}\nstreams")
FOLDED = TABLE.replace(
    "count: {store: sums}",
    f'aggregate: {{initial: "{F}:no_total", add: "{F}:times", subtract: "{F}:times", store: sums}}',
)


def refused(new: str, before: str) -> list[str]:
    return [one.subject for one in changes(new, before) if one.verdict is not Verdict.ROLLING]


def test_a_stream_that_becomes_a_table_is_refused() -> None:
    assert "store sums" in refused(TABLE, STREAM)
    assert "topic a-totals-repartition" in refused(TABLE, STREAM)
    assert "store sums" in refused(STREAM, TABLE)


def test_a_table_that_stays_is_not() -> None:
    assert changes(TABLE, TABLE) == []
    assert changes(FOLDED, FOLDED) == []


def test_another_function_of_group_or_subtract_is_refused() -> None:
    other_group = FOLDED.replace(f"{F}:tens", f"{F}:by_parity")
    other_subtract = FOLDED.replace(f'subtract: "{F}:times', f'subtract: "{F}:add_to_total')
    assert "store sums" in refused(other_group, FOLDED)
    assert "store sums" in refused(other_subtract, FOLDED)


PLAIN = TABLE[: TABLE.index("    steps:")] + "    to: totals\n"
NUMBERS = "  numbers: {topic: in, key: string, value: json, table: true}\n"
OTHERS = NUMBERS + NUMBERS.replace("numbers", "others").replace("topic: in", "topic: other")


def joined(table: str = "numbers") -> str:
    """Return a topology with a foreign-key join of `table`, and groups of its rows."""
    join = f'{{join: {{with: others, by: "{F}:times", key: "{F}:tens", kind: left, store: j}}}}'
    return f"""
application: a
sources:
{OTHERS}
streams:
  joined:
    from: {table}
    steps: [{join}]
    to: joined
  groups:
    from: joined
    steps: [{{group_by: {{by: "{F}:tens", key: string}}}}, {{count: {{store: counts}}}}]
    to: counts
"""


BEFORE = joined().partition("streams:")[0] + "streams:\n  numbers_out: {from: numbers, to: out}\n"
BEFORE += "  others_out: {from: others, to: out}\n"


def test_groups_of_a_table_that_has_run_are_refused() -> None:
    """A row that was never added would be taken back: a count would be -1."""
    found = changes(TABLE, PLAIN)
    assert kinds(found)["store sums"] == "group_added"
    with pytest.raises(StartRefused, match=r"table store numbers has rows .* and a backfill"):
        refuse_changes("a", found, ())


def test_groups_of_a_table_that_never_had_a_row_are_a_new_store() -> None:
    graph, asked = graph_of(TABLE), list[str]()

    def unwritten() -> list[str]:
        asked.append("changelogs")
        return ["numbers"]

    found = topology_changes(graph, after(PLAIN), topics_of(graph), unwritten)
    assert kinds(found)["store sums"] == "store_added"
    found = topology_changes(graph, after(PLAIN), topics_of(graph), lambda: ["sums"])
    assert kinds(found)["store sums"] == "group_added"
    topology_changes(graph, after(TABLE), topics_of(graph), unwritten)
    assert asked == ["changelogs"], "only where it matters"


def test_a_join_is_new_if_no_row_lacks_a_result() -> None:
    graph = graph_of(joined())
    found = topology_changes(graph, after(BEFORE), topics_of(graph), lambda: ["numbers", "others"])
    assert kinds(found)["store j.subscribed"] == "store_added"


def test_a_group_of_another_name_is_refused_with_the_lines_that_keep_it() -> None:
    """Without them a user would take a renamed stream for a reason to start a new application."""
    found = changes(TABLE.replace("store: sums", "store: others"), TABLE)
    assert kinds(found)["store others"] == "group_added"
    with pytest.raises(StartRefused, match=r"made store 'sums': to keep that, write store: sums "):
        refuse_changes("a", found, ())

    derived = TABLE.replace("{store: sums}", "{}")
    found = changes(derived.replace("totals:", "sums:"), derived)
    lines = (
        r"to keep that, write store: totals\.count in a\.yaml:\d+:\d+ and name: totals in a\.yaml"
    )
    with pytest.raises(StartRefused, match=lines):
        refuse_changes("a", found, ())
    kept = derived.replace("totals:", "sums:").replace("count: {}", "count: {store: totals.count}")
    kept = kept.replace("value: json}\n      - c", "value: json, name: totals}\n      - c")
    refuse_changes("a", changes(kept, derived), ())


def test_groups_of_a_join_that_is_new_as_well_are_not() -> None:
    found = changes(joined(), BEFORE)
    assert kinds(found)["store counts"] == "store_added"
    refuse_changes("a", found, ())


def test_a_join_of_a_table_that_has_run_names_the_rows_without_a_result() -> None:
    [change] = [one for one in changes(joined(), BEFORE) if one.change == "rows_unjoined"]
    assert change.subject == "store j.subscribed"
    assert "table store numbers has rows of earlier runs" in change.found
    assert "use another application name and a backfill" in change.next


def test_rows_of_another_table_are_refused() -> None:
    turned = joined("others").replace("with: others", "with: numbers")
    found = changes(turned, joined())
    assert kinds(found)["store j.subscribed"] == "rows_replaced"
    [change] = [
        one
        for one in changes(TABLE.replace("numbers", "numerals"), TABLE)
        if one.subject == "store sums"
    ]
    assert change.change == "rows_replaced"
    assert "to keep it, write numbers: {…} in a.yaml:" in change.found


@pytest.mark.parametrize(("old", "new"), [("left", "inner"), ("inner", "left")])
def test_a_join_of_another_kind_has_other_rows(old: str, new: str) -> None:
    """A left row without a right one would stay in its group, or be taken back from it unadded."""
    before = joined().replace("kind: left", f"kind: {old}")
    found = changes(joined().replace("kind: left", f"kind: {new}"), before)
    assert {one.name for one in found if one.change == "rows_replaced"} == {"counts", "j.joined"}
    assert f"row 1 {new} join: {F}:times, before none" in found[0].found

    by_key = f', key: "{F}:tens"'
    found = changes(
        *(
            joined()
            .replace(by_key, "")
            .replace(", store: j", "")
            .replace("kind: left", f"kind: {kind}")
            for kind in (new, old)
        )
    )
    assert kinds(found)["store counts"] == "rows_replaced"


def filtered(table: str) -> str:
    """Return `joined` with a filter before one side of the join."""
    big = f'streams:\n  big:\n    from: {table}\n    steps: [{{filter: "{F}:by_chance"}}]\n'
    text = joined().replace("streams:\n", big)
    return text.replace(
        *(
            ("from: numbers\n    steps: [{join", "from: big\n    steps: [{join")
            if table == "numbers"
            else ("with: others", "with: big")
        )
    )


@pytest.mark.parametrize(
    ("table", "store"), [("numbers", "j.subscribed"), ("others", "j.subscribers")]
)
def test_a_filter_of_a_side_of_a_foreign_key_join_leaves_rows_of_before(
    table: str, store: str
) -> None:
    """The join would keep a row that the filter drops, and no change would take it back."""
    for new, old in ((filtered(table), joined()), (joined(), filtered(table))):
        [change] = [one for one in changes(new, old) if one.subject == f"store {store}"]
        assert change.change == "rows_replaced"
        assert "row 1 filter: " in change.found
        assert f"{F}:by_chance" in change.found
    renamed = filtered(table).replace("by_chance", "by_parity")
    assert kinds(changes(renamed, filtered(table)))[f"store {store}"] == "store_function"
    mapped = filtered(table).replace("{filter:", "{map_values:")
    assert f"store {store}" not in kinds(changes(mapped, joined()))


def test_a_renamed_join_is_refused_with_the_line_that_keeps_each_of_its_stores() -> None:
    text = joined().partition("  groups:")[0]
    found = changes(text.replace("store: j", "store: k"), text)
    removed = [one for one in found if one.change == "store_removed"]
    assert {one.name for one in removed} == {"j.joined", "j.subscribed", "j.subscribers"}
    assert all("to keep it, write store: j in a.yaml:" in one.found for one in removed)


@pytest.mark.parametrize(
    "store", ["numbers", "others", "j.subscribed", "j.subscribers", "j.joined"]
)
def test_a_changelog_of_a_join_may_not_begin_anew(store: str) -> None:
    """Versions of subscriptions would count from 1, and their answers be dropped as older ones."""
    text = joined().partition("  groups:")[0]
    graph = graph_of(text)
    topics = topics_of(graph, **{f"a-{store}-changelog": ""})
    found = kinds(topology_changes(graph, after(text), topics))
    assert found[f"store {store}"] == "rows_forgotten"


def test_another_filter_before_a_group_is_one_of_its_functions() -> None:
    group = "      - group_by"
    filtered, other = (
        TABLE.replace(group, f'      - filter: "{F}:{name}"\n{group}')
        for name in ("by_chance", "by_parity")
    )
    assert kinds(changes(filtered, TABLE))["store sums"] == "rows_replaced"
    assert kinds(changes(TABLE, filtered))["store sums"] == "rows_replaced"
    [change] = [one for one in changes(other, filtered) if one.subject == "store sums"]
    assert (change.change, change.verdict) == ("store_function", Verdict.CONFIRM)
    assert f"row 1 filter: {F}:by_parity, before {F}:by_chance" in change.found
    assert "only renamed" in change.next


def test_a_filter_that_becomes_a_map_is_another_step() -> None:
    group = "      - group_by"
    filtered, mapped = (
        TABLE.replace(group, f'      - {step}: "{F}:by_chance"\n{group}')
        for step in ("filter", "map_values")
    )
    assert kinds(changes(mapped, filtered))["store sums"] == "rows_replaced"


COGROUP = f"""
application: a
sources:
  orders: {{topic: in, key: string, value: json}}
  clicks: {{topic: plain, key: string, value: json}}
streams:
  first: {{from: orders, steps: [{{filter: "{F}:by_chance"}}]}}
  second: {{from: orders, steps: [{{filter: "{F}:by_parity"}}]}}
  both:
    from: [FROM]
    steps: [{{cogroup: {{initial: "{F}:no_total", add: [ADD], store: both}}}}]
    to: both
"""


def cogroup(inputs: str, functions: str) -> str:
    names = ", ".join(f'"{F}:{name}"' for name in functions.split(", "))
    return COGROUP.replace("FROM", inputs).replace("ADD", names)


def test_the_inputs_of_a_cogroup_are_exchanged_with_their_functions_or_not_at_all() -> None:
    before = cogroup("orders, clicks", "times, add_to_total")
    assert "store both" not in kinds(
        changes(cogroup("clicks, orders", "add_to_total, times"), before)
    )
    for other in (
        cogroup("clicks, orders", "times, add_to_total"),
        cogroup("orders, clicks", "add_to_total, times"),
    ):
        [change] = [one for one in changes(other, before) if one.subject == "store both"]
        assert change.change == "store_function"
        assert f"add of in: {F}:add_to_total, before {F}:times" in change.found
        assert f"add of plain: {F}:times, before {F}:add_to_total" in change.found


def test_inputs_of_one_topic_have_their_order() -> None:
    before = cogroup("first, second", "times, add_to_total")
    [change] = [
        one
        for one in changes(cogroup("first, second", "add_to_total, times"), before)
        if one.subject == "store both"
    ]
    assert f"add of in, input 2: {F}:times, before {F}:add_to_total" in change.found
