"""Marks tell exactly which letters were replayed, in entries that stay small."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eosframework.application.replay_marks import STRETCH, Marks, mark_key, marks_in
from eosframework.records import TopicPartition

PARTITION = TopicPartition("dead", 2)

ranges = st.tuples(st.integers(0, 3 * STRETCH), st.integers(1, 50)).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1])
)


@given(st.lists(st.lists(ranges, max_size=5), max_size=8))
def test_marks_hold_what_was_marked_and_nothing_else(batches: list[list[tuple[int, int]]]) -> None:
    marks, model = Marks(PARTITION, "id"), set[int]()
    for batch in batches:
        for stretch in range(4):
            marks = marks.with_(stretch, batch)
        model.update(offset for first, end in batch for offset in range(first, end))
    looked_at = {offset + by for offset in model for by in (-1, 0, 1)} | {0}
    assert {offset for offset in looked_at if offset in marks} == model
    for known in marks.stretches.values():
        assert all(end < first for (_, end), (first, _) in pairwise(known))


def test_letters_replayed_one_after_the_other_are_one_range() -> None:
    marks = Marks(PARTITION, "id")
    for first in range(0, 100, 2):
        marks = marks.with_(0, [(first, first + 2)])
    assert marks.stretches == {0: [(0, 100)]}


def test_the_entry_of_a_stretch_has_the_ranges_there() -> None:
    ranges = [(1, 3), (STRETCH - 1, STRETCH + 2)]
    marks = Marks(PARTITION, "id").with_(0, ranges).with_(1, ranges)
    assert mark_key(PARTITION, 1) == "replayed/dead/2/1"
    assert marks.entry(1) == {"topic_id": "id", "ranges": [[STRETCH, STRETCH + 2]]}
    found = marks_in({mark_key(PARTITION, n): marks.entry(n) for n in (0, 1)}, {"dead": "id"})
    assert found == {PARTITION: marks}
