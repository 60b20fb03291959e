"""The lag of a task counts records, not the transaction markers after the last one."""

from __future__ import annotations

from eosframework.engine.task.offsets import TaskOffsets
from eosframework.records import Position, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_a_partition_that_is_run_to_its_last_stable_offset_has_nothing_unread() -> None:
    offsets = TaskOffsets({}, None)
    offsets.start_at([Position("a", 0, 3), Position("b", 0, 7)])
    assert offsets.unread == {A: 3, B: 7}
    offsets.reached[A] = 10
    offsets.read_to_end(A, 11)
    assert offsets.unread == {B: 7}
    offsets.read_to_end(B, 7)
    assert offsets.unread == {}


def test_what_comes_behind_an_end_counts_until_the_next_end() -> None:
    offsets = TaskOffsets({}, None)
    offsets.start_at([Position("a", 0, 3)])
    offsets.read_to_end(A, 4)
    offsets.reached[A] = 6
    assert offsets.unread == {A: 6}
    offsets.read_to_end(A, 7)
    assert offsets.unread == {}


def test_what_is_read_again_counts_again() -> None:
    offsets = TaskOffsets({}, None)
    offsets.start_at([Position("a", 0, 3)])
    offsets.read_to_end(A, 4)
    offsets.rewind()
    assert offsets.unread == {A: 3}
