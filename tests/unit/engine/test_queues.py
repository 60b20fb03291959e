"""The order in which a task runs its records."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.input_queues import (
    BUFFER_RECORDS,
    ArrivalQueue,
    Pending,
    TimestampQueue,
)
from eosframework.records import TopicPartition
from eosframework.testing import Sent

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def sent(partition: TopicPartition, times: list[int], first: int = 0) -> Pending:
    messages = [
        Sent(partition.topic, b"", None, time, first + i, None) for i, time in enumerate(times)
    ]
    return Pending(partition, messages, "member")


@dataclass
class Bench:
    idle_seconds: float = 0.0
    now: float = 0.0
    queue: TimestampQueue = field(init=False)

    def __post_init__(self) -> None:
        times = dict.fromkeys((A, B), lambda message: message.timestamp()[1])
        self.queue = TimestampQueue(times, self.idle_seconds, lambda: self.now)

    def drain(self, limit: int = 100) -> list[tuple[int, str]]:
        taken: list[tuple[int, str]] = []
        while self.queue.is_ready():
            pending = self.queue.take(limit)
            assert 0 < len(pending.messages) <= limit
            taken += [(m.timestamp()[1], m.topic()) for m in pending.messages]
        return taken


def test_the_smallest_timestamp_among_the_heads_comes_first() -> None:
    bench = Bench()
    bench.queue.add(sent(A, [10, 40, 30]))
    bench.queue.add(sent(B, [20, 25, 50]))
    assert bench.drain() == [(10, "a"), (20, "b"), (25, "b"), (40, "a"), (30, "a")]
    assert not bench.queue.is_ready(), "a may still bring a record before 50"
    bench.queue.reached_end(A, 3)
    assert bench.drain() == [(50, "b")]


def test_of_equal_timestamps_the_partition_that_was_named_first_comes_first() -> None:
    times = dict.fromkeys((B, A), lambda message: message.timestamp()[1])
    queue = TimestampQueue(times, 0.0, lambda: 0.0)
    queue.add(sent(A, [10, 10]))
    queue.add(sent(B, [10, 10, 20]))
    taken = [queue.take(100) for _ in range(2)]
    assert [(p.partition, len(p.messages)) for p in taken] == [(B, 2), (A, 2)]


def test_an_empty_partition_that_is_not_read_to_its_end_is_waited_for_however_long() -> None:
    bench = Bench()
    bench.queue.add(sent(B, [5]))
    bench.now = 1e6
    assert not bench.queue.is_ready()
    bench.queue.add(sent(A, [7]))
    assert bench.drain() == [(5, "b")]
    bench.queue.reached_end(B, 1)
    assert bench.drain() == [(7, "a")]


def test_one_that_is_read_to_its_end_is_waited_for_as_long_as_the_user_said() -> None:
    bench = Bench(idle_seconds=2)
    bench.queue.add(sent(B, [5, 6]))
    bench.queue.reached_end(A, 0)
    assert not bench.queue.is_ready()
    bench.now = 1.9
    assert not bench.queue.is_ready()
    bench.queue.add(sent(A, [1]))
    assert bench.drain() == [(1, "a")], "it starts to wait anew"
    bench.queue.reached_end(A, 1)
    assert not bench.queue.is_ready()
    bench.now = 4
    assert bench.drain() == [(5, "b"), (6, "b")]


def test_an_end_that_was_seen_before_more_came_does_not_count() -> None:
    bench = Bench()
    bench.queue.reached_end(A, 0)
    bench.queue.add(sent(A, [1]))
    bench.queue.add(sent(B, [2]))
    assert bench.drain() == [(1, "a")]
    assert not bench.queue.is_ready()


def test_what_waits_long_for_another_partition_is_not_fetched_further() -> None:
    bench = Bench()
    bench.queue.add(sent(B, [1] * BUFFER_RECORDS))
    assert bench.queue.full() == [B]
    bench.queue.add(sent(A, [2]))
    bench.drain(limit=10)
    assert bench.queue.full() == []


def test_equal_timestamps_are_taken_in_the_order_of_the_topics() -> None:
    bench = Bench()
    bench.queue.add(sent(B, [1, 1]))
    bench.queue.add(sent(A, [1, 1]))
    bench.queue.reached_end(A, 2)
    assert bench.drain() == [(1, "a"), (1, "a"), (1, "b"), (1, "b")]


@given(
    st.lists(st.integers(0, 20), max_size=12),
    st.lists(st.integers(0, 20), max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(1, 5),
)
def test_the_order_does_not_depend_on_how_the_records_came(
    a: list[int], b: list[int], sizes: list[int], limit: int
) -> None:
    """Take one head at a time from both lists: that is the order, however they are fetched."""
    expected: list[tuple[int, str]] = []
    left = {"a": list(a), "b": list(b)}
    while any(left.values()):
        _, topic = min((times[0], topic) for topic, times in left.items() if times)
        expected.append((left[topic].pop(0), topic))
    bench = Bench()
    taken: list[tuple[int, str]] = []
    offsets = {A: 0, B: 0}
    for turn in range(60):
        for partition, times in ((A, a), (B, b)):
            size = sizes[(turn + len(partition.topic)) % len(sizes)]
            begin = offsets[partition]
            if part := times[begin : begin + size]:
                bench.queue.add(sent(partition, part, begin))
                offsets[partition] += len(part)
            else:
                bench.queue.reached_end(partition, len(times))
        taken += bench.drain(limit)
    assert taken == expected


def test_a_single_partition_is_run_as_it_came() -> None:
    queue = ArrivalQueue()
    queue.add(sent(A, [3, 1, 2]))
    queue.add(sent(A, [9], 3))
    assert [m.timestamp()[1] for m in queue.take(2).messages] == [3, 1]
    assert [m.timestamp()[1] for m in queue.take(5).messages] == [2, 9]
    assert not queue.is_ready()


def test_messages_of_different_memberships_are_never_run_together() -> None:
    queue = ArrivalQueue()
    queue.add(sent(A, [3, 1]))
    later = sent(A, [2], 2)
    later.membership = object()
    queue.add(later)
    assert [m.timestamp()[1] for m in queue.take(5).messages] == [3, 1]
    assert queue.take(5).membership is later.membership
