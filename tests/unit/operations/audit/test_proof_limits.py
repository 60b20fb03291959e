"""What an audit cannot judge, and how it says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from eosframework.application.backfill_jobs import JobRange
from eosframework.cli.audit import as_text
from eosframework.engine.task.receipts import Series
from eosframework.errors import StartRefused
from eosframework.operations.audit.application_audit import receipted_topics, unproved_topics
from eosframework.operations.audit.audit_logs import processed_input
from eosframework.operations.audit.audit_verdict import Bound, Detail, Scope, Verdict
from eosframework.operations.audit.judged_ranges import Portions, divide
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

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


def test_so_is_what_waits_for_time_that_may_pass_idle_sources() -> None:
    window = "window: {session: 1h, late: late}, emit: close"
    group = f"group_by: {{by: {CALL}, key: string}}"
    streams = f"  x: {{from: events, steps: [{group}, count: {{{window}}}], to: hours}}\n"
    assert unproved(streams) == ["hours", "late"]


def test_only_receipts_judge_tasks_that_remember_or_write_a_repartition_topic() -> None:
    streams = f"""\
  x:
    from: events
    steps: [group_by: {{by: {CALL}, key: string}}, count: {{}}]
    to: counts
  y: {{from: others, to: copied}}
"""
    assert receipted_topics(graph_of(streams)) == {"events", "a-x-repartition"}


EVENTS = TopicPartition("events", 0)


@dataclass
class StubLogs:
    """The logs of an audit, of which every partition begins at 0 and has no record of a time."""

    inputs: list[TopicPartition]

    def firsts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 1000)

    @property
    def admin(self) -> StubLogs:
        return self

    def offsets_at(self, partitions: Iterable[TopicPartition], moment: int) -> dict[Any, None]:
        return dict.fromkeys(partitions)


def position(offset: int, since: int | None, number: int = 0) -> Position:
    numbering = "" if since is None else f";{Series(since, offset - since, offset - 1)}"
    return Position("events", number, offset, f"eos1;7;0{numbering}")


def job(
    name: str, first: int, offset: int, end: int, *, receipts: bool = True, cut_over: bool = False
) -> JobRange:
    return JobRange(
        name,
        EVENTS,
        first,
        end,
        position(offset, first if receipts else None),
        in_rows=False,
        of_files=False,
        complete=offset == end,
        is_cut_over=cut_over,
        has_receipts=receipts,
    )


def divided(
    live: Iterable[Position],
    *jobs: JobRange,
    start: str = "beginning",
    end: str = "end",
    remembered: Collection[str] = ("events",),
) -> Portions:
    processed = processed_input({one.topic_partition: one for one in live}, jobs)
    logs: Any = StubLogs([EVENTS, TopicPartition("events", 1)])
    scope = Scope(Bound.parse(start), Bound.parse(end))
    return divide(scope, processed, logs, receipts=True, remembered=frozenset(remembered))


def portions(*bounds: tuple[int, int | None], start: str = "beginning") -> Portions:
    """One partition each: the committed offset, and where its numbering began."""
    return divided((position(*one, number) for number, one in enumerate(bounds)), start=start)


def spans(found: Portions) -> list[tuple[int, int, int, int | None]]:
    """The judged records, the begin of their numbering, and where that ends to own records."""
    spans = found.spans(found.processed)
    return [(one.start, one.end, one.series.since, one.until) for one in spans]


def test_the_share_is_that_of_what_was_asked_for() -> None:
    whole = portions((100, 0), (50, 0))
    assert (whole.share, whole.is_whole, whole.left_out) == (1.0, True, {})
    part = portions((100, 80), (100, 0))
    assert (part.share, part.is_whole) == (0.6, False)
    assert part.left_out == {EVENTS: [(0, 80)]}
    assert portions((9, 0), (5, 0), start="2100-01-01").share == 1.0
    part.refuse_nothing()
    with pytest.raises(StartRefused, match=r"events\[0\]@0 to @99 have no receipts"):
        portions((100, None)).refuse_nothing()


def test_functions_judge_nothing_of_what_is_left_to_receipts() -> None:
    part = portions((100, 80), (100, None))
    now = processed_input({p: Position(*p, 120) for p in part.by_partition}, ())
    assert part.derived == []
    assert part.since_then(now) == []
    assert part.not_judged(now) == ({}, {})


def test_a_job_is_judged_up_to_its_progress_and_the_rest_of_its_range_counts_as_asked_for() -> None:
    found = divided([], job("history", 20, 60, 100))
    assert spans(found) == [(20, 60, 20, 100)]
    assert found.share == 0.5
    plain = divided([], job("history", 20, 60, 100, receipts=False), remembered=())
    assert (plain.derived, spans(plain)) == ([{EVENTS: (20, 60)}], [])
    with pytest.raises(StartRefused, match=r"it has not begun"):
        divided([], job("history", 20, 20, 100)).refuse_nothing()


def test_a_cutover_joins_a_job_and_live_workers_in_one_numbering() -> None:
    history = job("history", 20, 60, 60, cut_over=True)
    assert spans(divided([position(200, 20)], history)) == [(20, 200, 20, None)]
    assert spans(divided([position(200, 20)], history, start="50", end="70")) == [
        (50, 70, 20, None)
    ]


def test_what_precedes_the_range_of_a_job_that_was_cut_over_was_never_processed() -> None:
    history = job("history", 20, 60, 60, receipts=False, cut_over=True)
    found = divided([position(200, 60)], history, remembered=())
    assert (found.derived, spans(found)) == ([{EVENTS: (20, 60)}], [(60, 200, 60, None)])


def test_a_numbering_that_live_workers_ended_is_judged_up_to_the_end_of_the_job() -> None:
    """Receipts are off from 60 to 80, so that only functions can judge these records."""
    history = job("history", 20, 60, 60, cut_over=True)
    found = divided([position(200, 80)], history, remembered=())
    assert spans(found) == [(20, 60, 20, 60), (80, 200, 80, None)]
    assert found.derived == [{EVENTS: (60, 80)}]
    [earlier, _] = found.spans(found.processed)
    assert earlier.position_now == 200, "live workers wrote receipts of this numbering as well"


def test_jobs_alongside_live_workers_have_books_of_their_own() -> None:
    jobs = job("one", 0, 20, 20), job("two", 20, 50, 50)
    found = divided([position(200, 50)], *jobs)
    assert spans(found) == [(0, 20, 0, 20), (20, 50, 20, 50), (50, 200, 50, None)]
    assert (found.is_whole, found.share) == (True, 1.0)
    assert found.borders == {EVENTS: [20, 50]}


def test_records_that_were_processed_twice_belong_to_the_later_numbering() -> None:
    overlapping = divided([position(200, 30)], job("one", 0, 50, 50))
    assert spans(overlapping) == [(0, 30, 0, 50), (30, 200, 30, None)]
    within = divided([position(200, 0)], job("one", 20, 50, 50))
    assert spans(within) == [(0, 200, 0, None)]
    again = divided([], job("one", 0, 50, 50), job("two", 0, 80, 80))
    assert spans(again) == [(0, 80, 0, 80)]


def test_a_job_that_has_not_begun_takes_nothing_from_others() -> None:
    found = divided([position(200, 0)], job("later", 50, 50, 90))
    assert spans(found) == [(0, 200, 0, None), (50, 50, 50, 90)]


def test_a_cutover_during_an_audit_moves_the_position_and_adds_no_input() -> None:
    history = job("history", 20, 60, 60, receipts=False)
    before = divided([], history, remembered=())
    cut_over = replace(history, is_cut_over=True)
    now = processed_input({EVENTS: position(75, None)}, [cut_over])
    assert before.since_then(now) == [{EVENTS: (60, 75)}]
    numbered = divided([], job("history", 20, 60, 60))
    later = processed_input(
        {EVENTS: position(75, 20)}, [replace(job("history", 20, 60, 60), is_cut_over=True)]
    )
    assert numbered.since_then(later) == []
    assert [span.position_now for span in numbered.spans(later)] == [75]


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
