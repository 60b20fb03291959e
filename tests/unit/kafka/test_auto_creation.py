"""Topics that functions choose: missing ones are asked for now and then, others once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin import auto_creation
from eosframework.kafka.admin.auto_creation import ChosenTopics
from eosframework.kafka.admin.metadata import TopicDescription


class Cluster:
    """Answers an admin's requests, and counts them."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.asked: list[str] = []
        self.is_away = False

    def describe_written(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        if self.is_away:
            raise ClusterUnreachable("no answer")
        self.asked += names
        return {name: TopicDescription(exists=name in self.there) for name in names}

    def broker_settings(self) -> dict[int, Any]:
        return {1: {"auto.create.topics.enable": "false"}}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def chosen(cluster: Any) -> ChosenTopics:
    return ChosenTopics(KafkaSettings(), cluster)


def test_a_missing_topic_is_asked_for_again_only_after_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = chosen(cluster)
    assert [topics.is_missing("t") for _ in range(3)] == [True] * 3
    assert cluster.asked == ["t"]
    cluster.there.add("t")
    monkeypatch.setattr(auto_creation, "MISSING_SECONDS", 0)
    assert not topics.is_missing("t")


def test_brokers_that_do_not_answer_say_nothing_of_a_topic(cluster: Cluster) -> None:
    cluster.is_away = True
    assert not chosen(cluster).is_missing("t")


def test_missing_topics_do_not_fill_the_memory(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_creation, "MOST_MISSING", 10)
    topics = chosen(cluster)
    assert all(topics.is_missing(f"t{number}") for number in range(100))
    assert len(topics._missing_since) <= 10
