"""Topics that get more partitions while a worker runs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from eosframework.application.partition_growth import LOOK_SECONDS, PartitionGrowth
from eosframework.errors import RunError
from eosframework.records import TopicPartition
from tests.support.processes.waiting import wait_until


class Cluster:
    """Partition counts of a cluster, and a clock."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"in": 2, "rates": 1, "out": 3}
        self.looks = 0
        self.now = 0.0
        self.growth = PartitionGrowth(
            {"in": 2, "rates": 1, "out": 3}, ["in"], ["rates"], self.count, lambda: self.now
        )

    def count(self) -> Mapping[str, int]:
        self.looks += 1
        return dict(self.counts)

    def look(self) -> None:
        """Let a look happen, and be judged."""
        looks = self.looks
        self.now += LOOK_SECONDS
        self.growth.turn()
        wait_until(lambda: self.looks > looks and not self.growth._looking.locked(), "a look")
        self.growth.turn()


def test_partitions_that_a_topic_had_at_the_start_are_taken_and_others_are_not() -> None:
    growth = Cluster().growth
    growth.refuse_new([TopicPartition("in", 0), TopicPartition("in", 1)])
    with pytest.raises(RunError, match=r"'in' has partition 2, and had 2 .*growing-partitions"):
        growth.refuse_new([TopicPartition("in", 1), TopicPartition("in", 2)])


@pytest.mark.parametrize(
    ("topic", "advice"), [("in", "in=committed"), ("rates", "Start the workers again")]
)
def test_a_look_finds_what_the_group_does_not_tell(topic: str, advice: str) -> None:
    cluster = Cluster()
    cluster.look()
    cluster.counts[topic] = 5
    with pytest.raises(RunError, match=f"'{topic}' has 5 partitions.*{advice}"):
        cluster.look()


def test_a_topic_that_is_only_written_is_named_once_and_ends_nobody() -> None:
    cluster = Cluster()
    cluster.counts["out"] = 4
    with capture_logs() as logs:
        cluster.look()
        cluster.look()
    [told] = [log for log in logs if log["event"] == "topic_grown"]
    assert (told["topic"], told["partitions_before"], told["partitions"]) == ("out", 3, 4)


def test_a_topic_that_is_gone_has_not_grown() -> None:
    cluster = Cluster()
    cluster.counts = {}
    with capture_logs() as logs:
        cluster.look()
    assert not logs
