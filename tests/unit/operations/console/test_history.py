"""Rates, commits and takeovers follow from consecutive statuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from eosframework.application.composition.application_status import (
    ApplicationStatus,
    PartitionStatus,
    TaskStatus,
)
from eosframework.operations.console.readings import RATE_SECONDS, History
from eosframework.operations.console.timelines import ownership_timeline
from eosframework.records import TopicPartition

START = datetime(2026, 1, 31, 6, tzinfo=UTC)


class Time:
    seconds = 0.0

    def clock(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)


def status(owner: str | None, committed: int) -> ApplicationStatus:
    partitions = (PartitionStatus("in[0]", committed, 0, 0),)
    return ApplicationStatus("shop", {}, (TaskStatus("in[0]", "transforms", owner, partitions),))


def observed(history: History, time: Time, seconds: float, owner: str | None, at: int) -> None:
    time.seconds = seconds
    history.observe(status(owner, at), {TopicPartition("out", 0): 2 * at})


def test_rates_are_those_of_the_last_seconds() -> None:
    time = Time()
    history = History(time.clock, time.now)
    assert history.processed_per_second("in") is None
    observed(history, time, 0, "one", 0)
    assert history.processed_per_second("in") is None
    observed(history, time, 10, "one", 100)
    assert history.processed_per_second("in") == 10
    assert history.written_per_second("out") == 20
    for second in range(11, 200):
        observed(history, time, second, "one", 100)
    assert history.processed_per_second("in") == 0
    assert history.last_commit("in[0]") == START + timedelta(seconds=10)
    assert history.processed_per_second("i") is None, "a topic with a longer name is another one"
    assert RATE_SECONDS < 189


def test_a_takeover_is_an_event_and_two_segments_of_the_timeline() -> None:
    time = Time()
    history = History(time.clock, time.now)
    for seconds, owner in ((0, "one"), (60, "one"), (70, None), (100, "two"), (400, "two")):
        observed(history, time, seconds, owner, 0)
    assert [event.text for event in history.events] == [
        "in[0]: no owner → two",
        "in[0]: one → no owner",
    ]
    timeline = ownership_timeline(history.ownerships, history.began_at, time.now())
    [lane] = timeline.lanes
    assert [(segment.x, segment.width) for segment in lane.segments] == [
        (0, 17.5),
        (17.5, 7.5),
        (25, 75),
    ]
    styles = [segment.style for segment in lane.segments]
    assert styles[1] == "owner-none"
    assert len(set(styles)) == 3
    late = ownership_timeline(
        history.ownerships, history.began_at, time.now(), timedelta(seconds=100)
    )
    assert [(s.x, s.width) for s in late.lanes[0].segments] == [(0, 100)]


def test_fences_and_restarts_of_a_process_are_events() -> None:
    history = History()
    for answer in (
        {"instance": "one", "fences": 0, "recycles": 1},
        {"instance": "one", "fences": 2, "recycles": 1},
        {"instance": "one", "fences": 0, "recycles": 0},
        {"instance": "two", "fences": 0, "recycles": 0},
    ):
        history.observe_process("127.0.0.1:9400", answer)
    assert [event.text for event in reversed(history.events)] == [
        "one: 2 fences more",
        "one at 127.0.0.1:9400 was started again",
        "127.0.0.1:9400: two answers instead of one",
    ]
