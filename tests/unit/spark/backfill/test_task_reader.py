"""A task that reads several partitions of the log itself takes them in the order of a live one."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.input_queues import Pending, TimestampQueue
from eosframework.records import TopicPartition
from eosframework.spark.executor.attempt_context import Run
from eosframework.spark.executor.functions import merged
from eosframework.testing import Sent
from eosframework.transactions.ports import Message

Lanes = dict[str, list[int]]
"""Event times of a partition of each topic, in the order of their offsets."""

lanes = st.dictionaries(
    st.sampled_from(["a", "a.b", "b", "z"]), st.lists(st.integers(0, 6), max_size=8), min_size=1
)
"""Topics have their turn in another order than that of their names."""


def partition(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def sent(topic: str, times: list[int]) -> list[Sent]:
    return [Sent(topic, b"", None, time, 10 + 2 * n, None) for n, time in enumerate(times)]


def time_of(message: Message) -> int:
    return message.timestamp()[1]


def cut(found: Lanes, sizes: st.DataObject) -> dict[TopicPartition, Iterator[Run]]:
    """The records of each partition as fetches bring them, in parts of any size."""

    def parts(topic: str) -> Iterator[Run]:
        left = sent(topic, found[topic])
        while left:
            size = sizes.draw(st.integers(1, len(left)))
            yield partition(topic), left[:size]
            left = left[size:]

    return {partition(topic): parts(topic) for topic in found}


def live_order(found: Lanes, turns: list[str]) -> list[tuple[str, int]]:
    """Topic and offset of each record, as a task with all its input at hand takes them."""
    queue = TimestampQueue({partition(topic): time_of for topic in turns}, 0.0, lambda: 0.0)
    for topic, times in found.items():
        if times:
            queue.add(Pending(partition(topic), sent(topic, times), None))
        queue.reached_end(partition(topic), 100)
    taken: list[tuple[str, int]] = []
    while queue.is_ready():
        taken += [(m.topic(), m.offset()) for m in queue.take(1).messages]
    return taken


@given(lanes, st.data())
def test_merged_records_are_in_the_order_of_a_live_task(found: Lanes, sizes: st.DataObject) -> None:
    turns = sorted(found, key=lambda topic: (topic < "b", topic))
    merging = merged(cut(found, sizes), {partition(topic): time_of for topic in turns})
    taken = [(m.topic(), m.offset()) for _, messages in merging for m in messages]
    assert taken == live_order(found, turns)


@given(lanes, st.data())
def test_from_any_position_on_the_rest_comes_in_the_same_order(
    found: Lanes, sizes: st.DataObject
) -> None:
    turns = sorted(found)
    whole = live_order(found, turns)
    done = whole[: sizes.draw(st.integers(0, len(whole)))]
    rest = {topic: times[sum(t == topic for t, _ in done) :] for topic, times in found.items()}
    merging = merged(cut(rest, sizes), {partition(topic): time_of for topic in turns})
    taken = [m.topic() for _, messages in merging for m in messages]
    assert taken == [topic for topic, _ in whole[len(done) :]]
