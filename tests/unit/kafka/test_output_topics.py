"""Reports of missing output topics are repeated at intervals."""

from __future__ import annotations

from structlog.testing import capture_logs

from eosframework.kafka.producer.output_topics import REPEAT_SECONDS, OutputTopics


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.missing = OutputTopics({}, ["a", "b"], lambda: self.now)

    def reported(self, *topics: str) -> list[str]:
        with capture_logs() as events:
            self.missing.report(topics)
        return [event["topic"] for event in events if event["event"] == "output_topic_missing"]


def test_a_missing_topic_is_reported_once_and_again_after_a_while() -> None:
    world = World()
    assert world.reported("a") == ["a"]
    assert world.reported("a", "b") == ["b"]
    world.now = REPEAT_SECONDS
    assert world.reported("a", "b") == ["a", "b"]


def test_one_that_came_back_and_is_missing_once_more_is_news() -> None:
    world = World()
    assert world.reported("a") == ["a"]
    assert world.reported() == []
    assert world.reported("a") == ["a"]
