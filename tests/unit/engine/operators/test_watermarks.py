"""Stream time of a task behind repartition topics: the least watermark of its upstream tasks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from eosframework.engine.operators.entries import EntryFormat
from eosframework.engine.operators.store_transaction import Journal, open_transaction
from eosframework.engine.operators.watermarks import (
    Announcement,
    Upstream,
    UpstreamTimes,
    decode_watermark,
    encode_watermark,
)
from eosframework.errors import RunError
from eosframework.serialization.serdes import BYTES
from eosframework.state.memory import MemoryStore


@dataclass(frozen=True)
class Watermark:
    """A watermark record."""

    content: bytes | None
    name: str = "orders"

    def topic(self) -> str:
        return self.name

    def value(self) -> bytes | None:
        return self.content


def mark(task: int, time: int, *, is_idle: bool = False, topic: str = "orders") -> Watermark:
    return Watermark(encode_watermark([Announcement(task, time, is_idle)]), topic)


class Vector:
    """The times of a task, over a store that lasts."""

    def __init__(self, *own: str, **upstream: int) -> None:
        self.committed = MemoryStore()
        self.own, self.upstream = own, upstream
        self.times = self.restarted(0)

    def restarted(self, stream_time: int) -> UpstreamTimes:
        """Return the times of a task that begins with what the store has."""
        journal: Journal = []
        self.store = open_transaction(EntryFormat("times", BYTES), self.committed, journal)
        self.times = UpstreamTimes(self.store, journal, self.upstream, self.own)
        self.times.start_at(stream_time)
        self.times.begin()
        return self.times

    def commit(self) -> None:
        self.times.write()
        self.committed.apply(self.store.changes())
        self.store.committed()


def test_time_is_the_least_once_all_have_told_theirs() -> None:
    times = Vector(orders=2).times
    assert times.take(mark(0, 50), 0) == 0
    assert times.missing == [Upstream("orders", 1)]
    assert times.take(mark(1, 30), 0) == 30
    assert times.missing == []
    assert times.take(mark(1, 80), 30) == 50


def test_time_never_goes_back() -> None:
    times = Vector(orders=1).times
    assert times.take(mark(0, 50), 0) == 50
    assert times.take(mark(0, 20), 50) == 50


def test_an_idle_task_is_passed_as_far_as_its_log_was_read_and_counts_again_afterwards() -> None:
    times = Vector(orders=2).times
    times.take(mark(0, 50), 0)
    times.take(mark(1, 10, is_idle=True), 10)
    [idle] = times.held_by
    assert (times.now, idle, times.others) == (10, Upstream("orders", 1), 50)
    assert times.pass_sources([idle], 50) == 50
    times.take(mark(0, 90), 50)
    assert (times.now, times.held_by) == (50, [idle]), "its log may have more by now"
    times.take(mark(1, 60), 50)
    assert times.pass_sources([idle], 90) == 60, "it took back that it is idle"
    assert (times.held_by, times.all_are_passed) == ([], False)


def test_the_greatest_counts_once_all_are_idle_and_passed() -> None:
    times = Vector(orders=2, payments=1).times
    for task, at, topic in ((0, 50, "orders"), (1, 10, "orders"), (0, 70, "payments")):
        times.take(mark(task, at, is_idle=True, topic=topic), times.now)
    assert (times.now, times.all_are_passed) == (10, False)
    slow = Upstream("orders", 1)
    assert times.pass_sources([u for u in times.held_by if u != slow], 70) == 10
    assert (times.held_by, times.all_are_passed) == ([slow], False)
    assert (times.pass_sources([slow], 70), times.all_are_passed) == (70, True)


def test_own_sources_hold_time_until_they_are_idle() -> None:
    times = Vector("rates", "rules", orders=1).times
    times.take(mark(0, 50), 0)
    assert (times.moved("rates", 30), times.now) == (30, 0)
    assert (times.moved("rules", 20), times.now) == (20, 20)
    times.own_is_idle("rules")
    assert (times.now, times.held_by, times.others) == (20, ["rules"], 30)
    assert times.pass_sources(["rules"], 30) == 30
    assert times.active_own == ["rates"]
    times.own_is_idle("rates")
    assert times.pass_sources(times.held_by, times.others) == 50
    assert (times.active_own, times.passed_over) == ([], 0)


def test_a_record_of_a_source_that_counted_as_idle_is_counted_if_it_is_below_time() -> None:
    times = Vector("rates", orders=1).times
    times.take(mark(0, 50), 0)
    times.own_is_idle("rates")
    times.pass_sources(["rates"], times.others)
    assert (times.moved("rates", 60), times.now, times.passed_over) == (60, 50, 0)
    times.own_is_idle("rates")
    times.take(mark(0, 90), 50)
    times.pass_sources(["rates"], times.others)
    assert (times.moved("rates", 70), times.now, times.passed_over) == (70, 90, 1)
    assert times.active_own == ["rates"]


def test_the_times_are_the_same_after_a_restart() -> None:
    vector = Vector("rates", orders=2)
    vector.times.take(mark(0, 50), 0)
    vector.times.take(mark(1, 40, is_idle=True), 0)
    vector.times.moved("rates", 60)
    assert vector.times.pass_sources(vector.times.held_by, vector.times.others) == 50
    vector.commit()
    vector.times.take(mark(0, 1000), 50)
    times = vector.restarted(50)
    assert (times.now, times.missing) == (50, [])
    assert times.take(mark(0, 70), 50) == 50, "how far the idle one was passed is not kept"
    assert times.held_by == [Upstream("orders", 1)]
    assert times.pass_sources(times.held_by, times.others) == 60


def test_a_new_upstream_task_holds_time() -> None:
    vector = Vector(orders=1)
    vector.times.take(mark(0, 50), 0)
    vector.commit()
    vector.upstream = {"orders": 2}
    times = vector.restarted(50)
    assert times.missing == [Upstream("orders", 1)]
    assert times.take(mark(0, 90), 50) == 50
    assert times.take(mark(1, 70), 50) == 70


def test_tasks_that_are_gone_count_no_more() -> None:
    vector = Vector(orders=2)
    vector.times.take(mark(0, 50), 0)
    vector.times.take(mark(1, 20), 0)
    vector.commit()
    vector.upstream = {"orders": 1}
    times = vector.restarted(20)
    assert times.take(mark(1, 30), 20) == 20
    assert times.take(mark(0, 60), 20) == 60


@pytest.mark.parametrize("value", [None, b"", b"\0\2", b"\0\1abc", b'{"a": 1}'])
def test_a_watermark_of_another_version_ends_the_worker(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="another version"):
        decode_watermark(value)
    with pytest.raises(RunError, match="topic 'orders' contains a watermark of another version"):
        Vector(orders=1).times.take(Watermark(value), 0)
