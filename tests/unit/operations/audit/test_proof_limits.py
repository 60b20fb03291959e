"""What an audit cannot judge, and how it says so."""

from __future__ import annotations

import pytest

from eosframework.cli.audit import as_text
from eosframework.errors import StartRefused
from eosframework.operations.audit.audit_scope import Bound, Scope
from eosframework.operations.audit.audit_verdict import Detail, Verdict
from eosframework.operations.audit.judged_ranges import Portion, Portions
from eosframework.operations.audit.proof_limits import receipted_topics, unproved_topics
from eosframework.processing.transaction.receipts import Series
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.yaml_reader import read_yaml

SOURCES = """\
application: a
sources:
  events: {topic: events, key: string, value: json}
  others: {topic: others, key: string, value: json}
streams:
"""
CALL = "'builtins:max'"


def graph_of(streams: str) -> Graph:
    return resolve(read_yaml(SOURCES + streams, "app.yaml"))


def unproved(streams: str) -> list[str]:
    return sorted(unproved_topics(graph_of(streams)))


def test_what_goes_out_at_a_commit_is_unproved_with_all_that_follows_it() -> None:
    streams = (
        "  x: {from: events, steps: [count: {emit: commit}], to: latest,"
        " on_error: {dead_letter: d}}\n"
        f"  y: {{from: x, steps: [map_values: {CALL}], to: [shaped, both]}}\n"
        "  z: {from: events, to: [plain, both]}\n"
    )
    assert unproved(streams) == ["both", "d", "latest", "shaped"]
    assert "(emit: commit)" in unproved_topics(graph_of(streams))["latest"]


def test_so_is_what_the_clock_may_close() -> None:
    window = "window: {tumbling: 1h, close_when_idle: 1m}, emit: close"
    assert unproved(f"  x: {{from: events, steps: [count: {{{window}}}], to: hours}}\n") == [
        "hours"
    ]
    window = "window: {tumbling: 1h}, emit: close"
    assert unproved(f"  x: {{from: events, steps: [count: {{{window}}}], to: hours}}\n") == []
    assert unproved("  x: {from: events, steps: [count: {}], to: counts}\n") == []


def test_only_receipts_judge_tasks_that_remember_or_write_a_repartition_topic() -> None:
    streams = f"""\
  x:
    from: events
    steps: [group_by: {{by: {CALL}, key: string}}, count: {{}}]
    to: counts
  y: {{from: others, to: copied}}
"""
    assert receipted_topics(graph_of(streams)) == {"events", "a-x-repartition"}


def portions(*bounds: tuple[int, int, int, int | None], start: str = "beginning") -> Portions:
    """One partition each: where the scope, what is judged, and the input end, and receipts."""
    made = {
        TopicPartition("events", number): Portion(
            0,
            wanted,
            first,
            end,
            Position("events", number, end),
            None if since is None else Series(since),
        )
        for number, (wanted, first, end, since) in enumerate(bounds)
    }
    scope = Scope(Bound.parse(start))
    return Portions(scope, True, frozenset({"events"}), dict.fromkeys(made, 0), made)


def test_the_share_is_that_of_what_was_asked_for() -> None:
    whole = portions((0, 0, 100, 0), (0, 0, 50, 0))
    assert (whole.share, whole.is_whole, whole.left_out) == (1.0, True, {})
    part = portions((0, 80, 100, 80), (0, 0, 100, 0))
    assert (part.share, part.is_whole) == (0.6, False)
    assert part.left_out == {TopicPartition("events", 0): (0, 80)}
    assert portions((5, 5, 5, 0), start="5").share == 1.0
    part.refuse_nothing()
    with pytest.raises(StartRefused, match=r"events\[0\]@0 to @99 have no receipts"):
        portions((0, 100, 100, None)).refuse_nothing()


def test_functions_judge_nothing_of_what_is_left_to_receipts() -> None:
    part = portions((0, 80, 100, 80), (0, 100, 100, None))
    now = {p: Position(*p, 120) for p in part.by_partition}
    assert all(start == end for start, end in part.derived.values())
    assert part.since_then(now) == {}
    assert part.not_judged(now) == ({}, {})


def test_a_verdict_over_a_part_says_so() -> None:
    part = Verdict(input=10, output=12, share=0.9999, not_judged=3, notes=("a note",))
    assert as_text("a", part).splitlines() == [
        "a: 10 input records processed, 12 output records visible",
        "  lost                0",
        "  duplicated          0",
        "  reordered           0",
        "  torn                0",
        "  not judged          3  (outputs of many inputs)",
        "  judged: 99.9% of the requested input",
        "  note: a note",
        "each input record that was judged took effect exactly once",
    ]
    assert (part.as_data()["share"], part.as_data()["not_judged"]) == (0.9999, 3)
    whole = as_text("a", Verdict(input=10, output=12))
    assert whole.splitlines()[-1] == "each input record took effect exactly once"
    lost = Verdict(lost=1, share=0.5, details=(Detail("lost", "it is not there"),))
    assert "NOT exactly once" in as_text("a", lost)
