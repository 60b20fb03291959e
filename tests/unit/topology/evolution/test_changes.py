"""Which change of a topology asks for what."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from eosframework.application.control_topic import ControlState
from eosframework.application.topology_changes import (
    TOPOLOGY,
    refuse_changes,
    refuse_running_workers,
    topology_changes,
    topology_entry,
)
from eosframework.errors import StartRefused
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.topology.evolution import Change, Verdict, as_markdown
from eosframework.topology.evolution.topology_diff import rules
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.keyed_spec import windows_in_words

MODELS = "tests.unit.topology.evolution.models"
PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "changes.md"

F = "tests.support.applications.functions"

RUNNING = f"""
application: a
sources:
  numbers: {{topic: in, key: string, value: json}}
  factors: {{topic: factors, key: string, value: json, table: true}}
  plain: {{topic: plain, key: string, value: json}}
streams:
  totals:
    from: numbers
    steps:
      - group_by: {{by: "{F}:tens", key: string, value: json, partitions: 2}}
      - reduce: {{add: "{F}:times", store: sums}}
    to: totals
  windows:
    from: numbers
    steps:
      - filter: "{F}:by_chance"
      - count: {{window: {{tumbling: 1h}}, store: hours}}
    to: windows
  joined:
    from: numbers
    steps: [{{join: {{with: factors, by: "{F}:times"}}}}]
    to: joined
  copied:
    from: plain
    to: copied
"""

TOPICS = {"in": 2, "factors": 2, "plain": 3}


def graph_of(text: str) -> Graph:
    return resolve(read_yaml(text, "a.yaml"))


def topics_of(graph: Graph, **ids: str) -> dict[str, TopicDescription]:
    changelogs = [store.changelog for part in graph.sub_topologies for store in part.stores]
    sources = [source.topic for part in graph.sub_topologies for source in part.sources]
    return {
        name: TopicDescription(True, ids.get(name, f"id of {name}"), TOPICS.get(name, 2))
        for name in (*changelogs, *sources)
    }


def after(*texts: str) -> ControlState:
    """What the registry holds once these have run, one after the other."""
    registered = ControlState(cluster_id="c")
    for text in texts:
        graph = graph_of(text)
        entries = topology_entry(graph, registered, topics_of(graph))
        known = {**registered.entries, **orjson.loads(orjson.dumps(entries))}
        registered = replace(registered, entries=known)
    return registered


def changes(new: str, *ran: str) -> list[Change]:
    graph = graph_of(new)
    return topology_changes(graph, after(*(ran or (RUNNING,))), topics_of(graph))


def changed(*replacements: tuple[str, str]) -> str:
    text = RUNNING
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def kinds(found: list[Change]) -> dict[str, str]:
    return {change.subject: change.change for change in found}


FEED = '      - filter: "tests.support.applications.functions:by_chance"\n'
COUNT = "count: {window: {tumbling: 1h}, store: hours}"
REDUCE = f'reduce: {{add: "{F}:times", store: sums}}'
COPIED = "  copied:\n    from: plain\n    to: copied\n"

CASES = {
    "another function": ((f"{F}:by_chance", f"{F}:refuse_all"), {"sub-topology totals": "steps"}),
    "a step less": ((FEED, ""), {"sub-topology totals": "steps"}),
    "grace": (
        ("tumbling: 1h}", "tumbling: 1h, grace: 2h}"),
        {"sub-topology totals": "steps"},
    ),
    "ttl": (("store: sums", "store: sums, ttl: 1d"), {"sub-topology totals.keyed": "steps"}),
    "how a source is read": (
        ("{topic: plain, key: string, value: json}", "{topic: plain, value: json}"),
        {"sub-topology copied": "steps"},
    ),
    "dead letters": (
        ("from: plain\n", "from: plain\n    on_error: {dead_letter: dead}\n"),
        {"sub-topology copied": "steps"},
    ),
    "an output more": (("to: copied", "to: [copied, more]"), {"sub-topology copied": "steps"}),
    "a sub-topology less": ((COPIED, ""), {"sub-topology copied": "part_removed"}),
    "a sub-topology of another name": (
        ("  copied:\n", "  duplicate:\n"),
        {"topic plain": "topic_moved", "sub-topology copied": "part_removed"},
    ),
    "a store less": ((f"      - {COUNT}\n", ""), {"store hours": "store_removed"}),
    "a store more": (("to: windows", "to: windows\n"), {}),
    "another window": (("tumbling: 1h", "tumbling: 2h"), {"store hours": "store_window"}),
    "windows of records": (("tumbling: 1h", "records: 5"), {"store hours": "store_window"}),
    "days of a zone": (
        ("tumbling: 1h", "tumbling: 1d, zone: Europe/Berlin"),
        {"store hours": "store_window"},
    ),
    "windows instead of none": (
        (REDUCE, REDUCE.replace("store", "window: {tumbling: 1h}, store")),
        {"store sums": "store_window"},
    ),
    "another operator": (
        (REDUCE, f'max: {{of: "{F}:double", store: sums}}'),
        {"store sums": "store_kind"},
    ),
    "another format of values": (
        ("store: sums", "store: sums, value: string"),
        {"store sums": "store_value"},
    ),
    "another format with a way to read the old one": (
        ("store: sums", f'store: sums, value: string, version: 2, upgrade: "{F}:older"'),
        {"store sums": "store_version"},
    ),
    "a version without a way to read the old one": (
        ("store: sums", "store: sums, version: 2"),
        {"store sums": "version_without_upgrade"},
    ),
    "another number of partitions on the way": (
        ("partitions: 2", "partitions: 4"),
        {"topic a-totals-repartition": "repartition_partitions"},
    ),
    "the rows of another topic": (
        ("topic: factors", "topic: other"),
        {"store factors": "store_moved"},
    ),
    "keys of another format": (
        (f'{{by: "{F}:tens", key: string', f'{{by: "{F}:tens", key: json'),
        {"store sums": "store_key", "topic a-totals-repartition": "repartition_format"},
    ),
    "another function that is folded with": (
        (f'{{add: "{F}:times"', f'{{add: "{F}:add_to_total"'),
        {"store sums": "store_function"},
    ),
    "another function that makes keys": (
        (f'by: "{F}:tens"', f'by: "{F}:fifties"'),
        {"store sums": "store_function"},
    ),
    "another topic on the way": (
        ("partitions: 2}", "partitions: 2, name: other}"),
        {
            "store sums": "store_moved",
            "topic a-totals-repartition": "repartition_removed",
        },
    ),
}


def test_the_same_topology_has_not_changed() -> None:
    assert changes(RUNNING) == []


def test_nothing_is_said_of_an_application_that_never_ran() -> None:
    graph = graph_of(RUNNING)
    assert topology_changes(graph, ControlState(cluster_id="c"), topics_of(graph)) == []


def test_what_a_later_version_remembers_is_not_judged() -> None:
    graph, registered = graph_of(RUNNING), after(RUNNING)
    entry = {**registered.entries[TOPOLOGY], "version": 99}
    newer = replace(registered, entries={TOPOLOGY: entry})
    assert topology_changes(graph, newer, topics_of(graph)) == []


@pytest.mark.parametrize("case", CASES)
def test_each_change_is_judged_by_its_rule(case: str) -> None:
    replacement, expected = CASES[case]
    found = kinds(changes(changed(replacement)))
    assert found.items() >= expected.items(), found
    asked = [list(Verdict).index(c.verdict) for c in changes(changed(replacement))]
    assert asked == sorted(asked, reverse=True)


@pytest.mark.parametrize(
    "case", ["another function", "a step less", "grace", "ttl", "how a source is read"]
)
def test_what_touches_nothing_that_is_kept_may_be_rolled_out_and_back(case: str) -> None:
    new = changed(CASES[case][0])
    for found in (changes(new), changes(RUNNING, RUNNING, new)):
        assert {change.verdict for change in found} == {Verdict.ROLLING}
        refuse_running_workers("a", found, ["eosframework-1"])


def test_a_model_in_place_of_json_is_read_from_the_same_bytes() -> None:
    new = changed(
        (
            "value: json, partitions",
            'value: "tests.unit.topology.evolution.models:Number", partitions',
        )
    )
    assert "topic a-totals-repartition" not in kinds(changes(new))


def test_a_store_that_was_left_out_does_not_come_back_under_its_name() -> None:
    without = changed((f"      - {COUNT}\n", ""))
    assert kinds(changes(RUNNING, RUNNING, without))["store hours"] == "store_returned"
    assert kinds(changes(RUNNING, RUNNING, without, without))["store hours"] == "store_returned"
    assert "store hours" not in kinds(changes(without, RUNNING, without))


def test_the_times_of_upstream_tasks_come_with_a_window_and_may_come_back() -> None:
    plain, timed = "{add:", "{window: {tumbling: 1h}, emit: close, add:"
    windowed, own = changed((plain, timed)), "store totals.keyed.__watermarks"
    [added] = [change for change in changes(windowed) if change.subject == own]
    assert (added.change, added.verdict) == ("store_added", Verdict.STOP)
    assert own not in kinds(changes(windowed, windowed))
    assert kinds(changes(RUNNING, windowed))[own] == "watermarks_removed"
    assert kinds(changes(windowed, windowed, RUNNING))[own] == "store_added"


TWO_FOLDS = f"""
application: a
sources:
  numbers: {{topic: in, key: string, value: json}}
streams:
  totals:
    from: numbers
    steps: [{{group_by: {{by: "{F}:tens", key: string, value: json, partitions: 2}}}}]
  one:
    from: totals
    steps: [{{reduce: {{add: "{F}:times", store: first, order: time}}}}]
    to: one
  other:
    from: totals
    steps: [{{reduce: {{add: "{F}:times", store: second, order: time}}}}]
    to: other
"""
HELD = "store totals.keyed.__reorder"


def test_a_reorder_step_with_held_records_is_neither_removed_nor_left_by_a_step() -> None:
    in_order, by_arrival = (
        changed((REDUCE, REDUCE.replace("add:", f"order: {order}, add:")))
        for order in ("time", "arrival")
    )
    found = changes(by_arrival, in_order)
    assert kinds(found)[HELD] == "reorder_removed"
    refuse_changes("a", found, ())
    with pytest.raises(StartRefused, match=r"holds records.*never be run.*until-caught-up"):
        refuse_changes("a", found, {HELD.removeprefix("store ")})
    assert kinds(changes(in_order, by_arrival))[HELD] == "store_added"
    assert kinds(changes(in_order, in_order, by_arrival))[HELD] == "store_added"
    assert HELD not in kinds(changes(in_order, in_order))


def test_a_step_that_leaves_a_reorder_step_may_not_miss_held_records() -> None:
    one = TWO_FOLDS.replace("store: second, order: time", "store: second")
    [change] = [c for c in changes(one, TWO_FOLDS) if c.change == "reorder_changed"]
    assert change.subject == HELD
    assert "as they arrive, before in order of time" in change.found
    [change] = [c for c in changes(TWO_FOLDS, one) if c.change == "reorder_changed"]
    assert "in order of time, before as they arrive" in change.found


def test_a_reorder_step_keeps_its_name_whatever_is_declared_before_it() -> None:
    """The held records of one sub-topology would otherwise be run by another one."""
    before = f"""\
  before:
    from: numbers
    steps: [{{group_by: {{by: "{F}:tens", key: string, value: json, partitions: 2}}}}]
  earlier:
    from: before
    steps: [{{reduce: {{add: "{F}:times", store: third, order: time}}}}]
    to: earlier
"""
    found = kinds(changes(TWO_FOLDS.replace("streams:\n", f"streams:\n{before}"), TWO_FOLDS))
    assert HELD not in found
    assert found["store before.keyed.__reorder"] == "store_added"


def test_a_store_whose_changelog_is_gone_begins_empty_whatever_it_was_made_for() -> None:
    graph = graph_of(changed(("tumbling: 1h", "tumbling: 2h")))
    topics = topics_of(graph, **{"a-hours-changelog": ""})
    assert kinds(topology_changes(graph, after(RUNNING), topics))["store hours"] == "store_emptied"


def test_what_spoils_state_is_refused_whoever_runs() -> None:
    found = changes(changed(("tumbling: 1h", "tumbling: 2h")))
    with pytest.raises(StartRefused) as caught:
        refuse_changes("a", found, ())
    message = str(caught.value)
    for part in ("store hours", "tumbling windows of 1h", "tumbling windows of 2h", "store:"):
        assert part in message


def test_what_needs_all_workers_stopped_is_refused_while_one_runs() -> None:
    found = changes(changed((COPIED, "  renamed:\n    from: plain\n    to: copied\n")))
    refuse_changes("a", found, ())
    with pytest.raises(StartRefused, match=r"2 workers run.*Stop all workers"):
        refuse_running_workers("a", found, ["eosframework-1", "eosframework-2"])


def test_a_way_with_unread_records_is_not_left() -> None:
    found = changes(
        changed(
            (
                f'{{by: "{F}:tens", key: string, value: json',
                f'{{by: "{F}:tens", key: string, value: bytes',
            )
        )
    )
    assert kinds(found)["topic a-totals-repartition"] == "repartition_format"
    refuse_changes("a", found, ())
    with pytest.raises(StartRefused, match="until-caught-up"):
        refuse_changes("a", found, {"a-totals-repartition"})


def test_records_that_wait_for_another_attempt_are_not_left_behind() -> None:
    retry = "on_error: {dead_letter: dead, retry: [10s]}"
    retrying = changed(("from: plain\n", f"from: plain\n    {retry}\n"))
    assert "sources_changed" in {change.change for change in changes(retrying)}
    assert kinds(changes(RUNNING, retrying))["topic a-plain.10s-retry"] == "repartition_removed"


def test_every_rule_that_is_compared_is_raised_here_and_no_other_is_known() -> None:
    compared = {name for name, rule in rules().items() if rule.seen is None}
    raised = {rule for _, expected in CASES.values() for rule in expected.values()}
    elsewhere = {
        "outputs",
        "part_added",
        "reorder_changed",
        "reorder_removed",
        "sources_changed",
        "store_added",
        "store_emptied",
        "store_returned",
        "store_taken",  # test_kept_names.py
        "group_added",  # these in test_grouped_tables.py
        "rows_forgotten",
        "rows_replaced",
        "rows_unjoined",
        "repartition_taken",
        "version_lowered",
        "watermarks_removed",
    }
    assert compared == raised | elsewhere


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (RUNNING, changed(("to: copied", "to: [copied, more]")), "outputs"),
        (changed((COPIED, "")), RUNNING, "part_added"),
        (
            changed((f'steps: [{{join: {{with: factors, by: "{F}:times"}}}}]', "steps: []")),
            RUNNING,
            "sources_changed",
        ),
        (changed((f"      - {COUNT}\n", "")), RUNNING, "store_added"),
        (
            changed(("store: sums", f'store: sums, version: 2, upgrade: "{F}:older"')),
            RUNNING,
            "version_lowered",
        ),
    ],
)
def test_changes_from_another_topology_are_judged(old: str, new: str, expected: str) -> None:
    assert expected in {change.change for change in changes(new, old)}


def test_the_page_has_the_table_as_it_is_shipped() -> None:
    assert as_markdown() in PAGE.read_text(encoding="utf-8")


def test_every_row_of_the_table_says_what_to_do() -> None:
    for rule in rules().values():
        assert rule.change
        assert rule.why
        assert rule.next
        assert not re.search(r"[.\s]$", rule.next), rule.name


JOINED = f"""
application: a
sources:
  zebras: {{topic: zebras, key: string, value: json}}
  apes: {{topic: apes, key: string, value: string}}
  rows: {{topic: rows, key: string, value: string, table: true}}
streams:
  met:
    from: zebras
    steps:
      - join: {{with: apes, by: "{F}:times", within: 10m, grace: 5s, kind: left}}
      - join: {{with: rows, by: "{F}:times"}}
    to: out
"""


def found(old: str, new: str, subject: str) -> Change:
    assert old in JOINED
    [change] = [c for c in changes(JOINED.replace(old, new), JOINED) if c.subject == subject]
    return change


def test_another_number_of_records_is_another_window() -> None:
    before, now = (
        RUNNING.replace("tumbling: 1h", f"records: {records}, step: 2") for records in (5, 6)
    )
    [change] = changes(now, before)
    assert change.change == "store_window"
    windows = "windows of {} records every 2"
    assert change.found == f"made for {windows.format(6)}, before {windows.format(5)}"
    assert changes(before, before) == []


def test_the_interval_of_a_join_is_told_in_its_own_words() -> None:
    change = found("grace: 5s", "grace: 6s", "store met.join")
    assert change.change == "store_window"
    assert change.found == (
        "made for a join with before 10m, after 10m and grace 6s, "
        "before a join with before 10m, after 10m and grace 5s"
    )


def test_both_sides_of_a_join_are_one_step() -> None:
    change = found("kind: left", "kind: outer", "sub-topology met")
    step = "met: join(apes, tests.support.applications.functions:times), {} join, on error fail"
    assert change.found == f"without {step.format('left')}; with {step.format('outer')}"


@pytest.mark.parametrize(
    ("old", "new", "subject"),
    [
        ("rows, key: string, value: string", "rows, key: string, value: json", "store rows"),
        ("topic: rows", "topic: others", "store rows"),
        ("table: true", "table: true, history: 1h", "store rows"),
        ("apes, key: string, value: string", "apes, key: string, value: json", "store met.join"),
    ],
)
def test_the_advice_names_no_option_that_a_table_or_a_join_lacks(
    old: str, new: str, subject: str
) -> None:
    change = found(old, new, subject)
    assert change.verdict is Verdict.OTHER_STORE
    assert "upgrade" not in change.next
    assert ("store:" in change.next) == (subject == "store met.join")


def test_another_n_is_another_store_and_another_limit_is_not() -> None:
    """A list of the first five cannot become one of ten; one of up to five can."""
    texts = [
        changed((REDUCE, step))
        for step in (
            'top: {n: 5, by: "builtins:len", store: sums}',
            'top: {n: 10, by: "builtins:len", store: sums}',
            'distinct: {limit: 5, by: "builtins:len", store: sums}',
            'distinct: {limit: 10, by: "builtins:len", store: sums}',
        )
    ]
    assert kinds(changes(texts[1], texts[0])) == {"store sums": "store_kind"}
    (found,) = changes(texts[1], texts[0])
    assert found.found == "used by top 10, before top 5"
    assert kinds(changes(texts[3], texts[2])) == {}


def test_added_and_removed_stores_say_so() -> None:
    without = changed((f"      - {COUNT}\n", ""))
    [removed] = [c for c in changes(without) if c.subject == "store hours"]
    [added] = [c for c in changes(RUNNING, without) if c.subject == "store hours"]
    assert removed.found == "removed from sub-topology totals"
    assert added.found == "added to sub-topology totals"


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        (None, "no windows"),
        ("hopping:3600000/600000 ms", "hopping windows of 1h every 10m"),
        ("tumbling:86400000@Asia/Kolkata ms", "tumbling windows of 1d in Asia/Kolkata"),
        ("session:1500", "session windows of 1500ms"),
        ("of another version", "of another version"),
    ],
)
def test_windows_are_told_with_their_units(signature: str | None, words: str) -> None:
    assert windows_in_words(signature) == words
