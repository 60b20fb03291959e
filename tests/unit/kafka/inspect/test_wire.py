"""A topic that is deleted while the cluster is asked is left out; only it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from eosframework.errors import ClusterUnreachable
from eosframework.kafka.inspect import wire
from eosframework.kafka.inspect.vendor import errors
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition

KEPT, GONE = TopicPartition("kept", 0), TopicPartition("gone", 0)


class OnOneCluster(Wire):
    """Sends nothing: the answers are those of a cluster that has `topics`."""

    def __init__(self, topics: set[str]) -> None:
        self.topics = topics
        self._deadline_seconds = 0.2
        self._complaint = wire._LastComplaint()

    def leaders(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, int | None]:
        return {TopicPartition(topic, 0): 1 for topic in self.topics.intersection(topics or ())}


def ask(partitions: Collection[TopicPartition]) -> dict[TopicPartition, Any]:
    """Answer as a leader: a request that names a deleted topic fails as a whole."""
    if GONE in partitions:
        raise errors.UnknownTopicOrPartitionError
    return dict.fromkeys(partitions, 7)


def test_a_deleted_topic_is_left_out() -> None:
    cluster = OnOneCluster({"kept"})
    assert cluster.call_for_existing("asking of", "Read", [KEPT, GONE], ask) == {KEPT: 7}
    assert cluster.call_for_existing("asking of", "Read", [GONE], ask) == {}


def test_a_topic_that_brokers_list_and_its_leader_does_not_know_is_an_error() -> None:
    cluster = OnOneCluster({"kept", "gone"})
    with pytest.raises(ClusterUnreachable, match="asking of gone, kept: no answer within"):
        cluster.call_for_existing("asking of", "Read", [KEPT, GONE], ask)


def test_a_message_names_few_topics() -> None:
    topics = {f"t{number}" for number in range(9)} | {"gone"}
    partitions = [TopicPartition(topic, 0) for topic in topics]
    with pytest.raises(ClusterUnreachable, match="asking of gone, t0, t1 and 7 other topics: "):
        OnOneCluster(topics).call_for_existing("asking of", "Read", partitions, ask)
