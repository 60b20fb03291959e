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
    renamed = changes(TABLE.replace("store: sums", "store: totals"), TABLE)
    assert kinds(renamed)["store totals"] == "group_added"


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
    assert kinds(changes(TABLE.replace("numbers", "numerals"), TABLE))["store sums"] == (
        "rows_replaced"
    )


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
    assert f"row 1: {F}:by_parity, before {F}:by_chance" in change.found
    assert "only renamed" in change.next
