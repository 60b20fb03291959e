"""What a running worker's watch concludes from topics and offsets that are not those of its start.

`Cluster` stands for the brokers here; tests/faults/test_topic_identity.py has real ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from eosframework.application.topic_identity import Use, resuming
from eosframework.application.topic_watch import LOOK_SECONDS, TopicWatch
from eosframework.errors import ClusterUnreachable, IdentityChanged, RunError
from eosframework.kafka.admin.metadata import TopicIdentity
from eosframework.records import Position, TopicPartition
from tests.support.processes.waiting import wait_until

IN = TopicPartition("in", 0)
USES = {
    "in": Use.SOURCE,
    "rates": Use.GLOBAL,
    "out": Use.OUTPUT,
    "sums-changelog": Use.CHANGELOG,
    "app-control": Use.CONTROL,
}


class Cluster:
    """Topics and offsets of a cluster, a clock, and the watch over them."""

    def __init__(self) -> None:
        counts = {"in": 2, "rates": 1, "out": 3, "sums-changelog": 2, "app-control": 1}
        self.found = {topic: TopicIdentity(f"{topic}#1", n) for topic, n in counts.items()}
        self.offsets: list[Position] = []
        self.members: list[str] = []
        self.recorded_ids: dict[str, str | None] = {}
        self.at = {IN: 5}
        self.is_away = False
        self.looks = 0
        self.now = 0.0
        self.watch = TopicWatch(
            self.found, USES, self, [IN], lambda: self.now, sleep=lambda _: None
        )

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicIdentity]:
        self.looks += 1
        if self.is_away:
            raise ClusterUnreachable("no broker")
        return {name: self.found[name] for name in names if name in self.found}

    def committed(self) -> Sequence[Position]:
        return self.offsets

    def strangers(self) -> Sequence[str]:
        return self.members

    def resuming(self, topic: str, found: TopicIdentity | None, untouched: Sequence[int]) -> str:
        positions = [Position(*p, offset) for p, offset in self.at.items()]
        return resuming(topic, found, positions, {0: 100, 1: 100}, untouched=untouched)

    def recorded(self, topic: str) -> str | None:
        return self.recorded_ids.get(topic, f"{topic}#1")

    def make_anew(self, topic: str, partitions: int | None = None) -> None:
        self.found[topic] = TopicIdentity(f"{topic}#2", partitions or self.found[topic].partitions)

    def look(self) -> None:
        """Let a look happen, and be judged."""
        looks = self.looks
        self.now += LOOK_SECONDS
        self.watch.turn(lambda: self.at)
        wait_until(lambda: self.looks > looks and not self.watch._looking.locked(), "a look")
        self.watch.turn(lambda: self.at)

    def grow(self, topic: str, partitions: int) -> None:
        self.found[topic] = TopicIdentity(self.found[topic].topic_id, partitions)


def test_partitions_that_a_topic_had_at_the_start_are_taken_and_others_are_not() -> None:
    watch = Cluster().watch
    watch.refuse_new([TopicPartition("in", 0), TopicPartition("in", 1)])
    with pytest.raises(RunError, match=r"'in' has partition 2, and had 2 .*growing-partitions"):
        watch.refuse_new([TopicPartition("in", 1), TopicPartition("in", 2)])


@pytest.mark.parametrize(
    ("topic", "advice"), [("in", "in=committed"), ("rates", "Start the workers again")]
)
def test_a_look_finds_what_the_group_does_not_tell(topic: str, advice: str) -> None:
    cluster = Cluster()
    cluster.look()
    cluster.grow(topic, 5)
    with pytest.raises(RunError, match=f"'{topic}' has 5 partitions.*{advice}"):
        cluster.look()


def test_a_topic_that_is_only_written_is_named_once_and_ends_nobody() -> None:
    cluster = Cluster()
    cluster.grow("out", 4)
    with capture_logs() as logs:
        cluster.look()
        cluster.look()
    [told] = [log for log in logs if log["event"] == "topic_grown"]
    assert (told["topic"], told["partitions_before"], told["partitions"]) == ("out", 3, 4)


@pytest.mark.parametrize(
    ("topic", "command"),
    [
        ("in", "positions set APP in=earliest"),
        ("out", "apply APP --accept out"),
        ("sums-changelog", "apply APP --accept sums-changelog"),
        ("app-control", "reset APP"),
    ],
)
def test_another_id_ends_the_worker_with_both_ids_and_a_command(topic: str, command: str) -> None:
    cluster = Cluster()
    cluster.look()
    cluster.make_anew(topic)
    with pytest.raises(IdentityChanged) as ended:
        cluster.look()
    for part in (f"{topic}#1", f"{topic}#2", f"eosframework {command}"):
        assert part in str(ended.value)


def test_a_source_is_not_to_be_read_again_where_a_part_of_it_may_have_been() -> None:
    cluster = Cluster()
    cluster.look()
    cluster.make_anew("in")
    cluster.at[IN] = 8
    with pytest.raises(IdentityChanged, match=r"offsets 5 to 8 of in\[0\] were processed") as ended:
        cluster.watch.confirm(lambda: cluster.at)
    assert "positions set APP 'in[0]=8' 'in[1]=earliest'" in str(ended.value)


def test_positions_beyond_the_new_end_were_not_reached_in_it() -> None:
    text = resuming("in", TopicIdentity("b", 1), [Position("in", 0, 9)], {0: 8})
    assert "Nothing of the new one was processed" in text
    text = resuming("in", TopicIdentity("b", 1), [Position("in", 0, 8)], {0: 8})
    assert "'in[0]=8'" in text


@pytest.mark.parametrize("topic", ["in", "sums-changelog", "app-control"])
def test_a_topic_that_is_gone_ends_the_worker(topic: str) -> None:
    cluster = Cluster()
    del cluster.found[topic]
    with pytest.raises(IdentityChanged, match=f"{topic}.* was deleted"):
        cluster.look()


def test_an_output_that_is_gone_is_waited_for_and_one_that_was_accepted_is_written() -> None:
    cluster = Cluster()
    gone = cluster.found.pop("out")
    cluster.look()
    cluster.found["out"] = gone
    cluster.make_anew("out")
    cluster.recorded_ids["out"] = None
    with capture_logs() as logs:
        cluster.look()
        assert logs == []
        cluster.recorded_ids["out"] = "out#2"
        cluster.look()
        cluster.look()
    assert [log["event"] for log in logs] == ["topic_accepted"]


@pytest.mark.parametrize(("topic", "recorded"), [("in", "in#2"), ("sums-changelog", None)])
def test_a_change_that_a_command_explains_asks_for_another_start(
    topic: str, recorded: str | None
) -> None:
    cluster = Cluster()
    cluster.make_anew(topic)
    cluster.recorded_ids[topic] = recorded
    with pytest.raises(IdentityChanged, match="start this worker again"):
        cluster.look()


def test_a_global_table_is_read_again_once() -> None:
    cluster = Cluster()
    cluster.make_anew("rates")
    cluster.look()
    assert cluster.watch.renewed()
    cluster.look()
    assert not cluster.watch.renewed()


def test_offsets_of_another_consumer_are_named_with_it_even_when_it_has_left() -> None:
    cluster = Cluster()
    cluster.offsets = [Position("in", 0, 5, "eos1;3;0"), Position("in", 1, 9, "its own")]
    cluster.members = ["client.id etl at 10.0.0.9"]
    cluster.look()  # in[1] was never committed by the application
    cluster.members = []
    cluster.offsets[0] = Position("in", 0, 8, "")
    with pytest.raises(IdentityChanged) as ended:
        cluster.look()
    for part in ("in[0]=8", "client.id etl at 10.0.0.9", "last own offsets seen are in[0]=5"):
        assert part in str(ended.value)


def test_brokers_that_are_away_confirm_nothing_and_end_nobody() -> None:
    cluster = Cluster()
    cluster.is_away = True
    cluster.look()
    assert not cluster.watch.confirm(lambda: cluster.at)
    cluster.is_away = False
    cluster.now += 1
    assert cluster.watch.confirm(lambda: cluster.at)
