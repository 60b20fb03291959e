"""The order that sorting gives is that of the live queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.engine.task.input_queues import Pending, TimestampQueue
from eosframework.records import TopicPartition
from eosframework.spark.session.ordering import SortKeys
from eosframework.testing import Sent
from tests.support.applications.graphs import graph_of

Lanes = dict[str, list[int]]
"""Event times of a partition of each topic, in the order of their offsets."""

lanes = st.dictionaries(
    st.sampled_from(["a", "a.b", "b", "z"]), st.lists(st.integers(0, 6), max_size=8), min_size=1
)


def sent(topic: str, times: list[int]) -> list[Sent]:
    return [Sent(topic, b"", None, time, offset, None) for offset, time in enumerate(times)]


def live_order(found: Lanes, limit: int) -> list[tuple[str, int]]:
    """Topic and offset of each record, as a task with all its input at hand takes them."""
    partitions = {topic: TopicPartition(topic, 0) for topic in sorted(found)}
    times = dict.fromkeys(partitions.values(), lambda message: message.timestamp()[1])
    queue = TimestampQueue(times, 0.0, lambda: 0.0)
    for topic, partition in partitions.items():
        if found[topic]:
            queue.add(Pending(partition, sent(topic, found[topic]), None))
        queue.reached_end(partition, len(found[topic]))
    taken: list[tuple[str, int]] = []
    while queue.is_ready():
        taken += [(m.topic(), m.offset()) for m in queue.take(limit).messages]
    return taken


@given(lanes, st.integers(1, 4))
def test_sorted_by_place_records_are_in_the_order_of_a_live_task(found: Lanes, limit: int) -> None:
    sort_keys = SortKeys(graph_of("app", {"part": (sorted(found), [])}), "part")
    keys = [
        (sort_keys.of(message)[0], topic, message.offset())
        for topic, times in found.items()
        for message in sent(topic, times)
    ]
    assert [(topic, offset) for _, topic, offset in sorted(keys)] == live_order(found, limit)


def test_each_writer_of_an_own_topic_has_a_largest_time_of_its_own() -> None:
    graph = graph_of("app", {"first": (["in"], ["own"]), "second": (["own"], [])})
    sort_keys = SortKeys(graph, "second")
    written = [("first/0", 10), ("first/0", 90), ("first/1", 20), ("first/0", 50), ("first/1", 5)]

    found = [
        sort_keys.of(Sent("own", b"", None, time, offset, [(WRITER_HEADER, writer.encode())]))
        for offset, (writer, time) in enumerate(written)
    ]

    assert found == [
        (10, "first/0"),
        (90, "first/0"),
        (20, "first/1"),
        (90, "first/0"),
        (20, "first/1"),
    ]
