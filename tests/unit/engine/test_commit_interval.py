"""The metadata of committed offsets, and the commit interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.offsets import Progress, latest
from eosframework.engine.worker.commit_interval import RECENT, CommitInterval
from eosframework.records import Position

numbers = st.integers(0, 2**62)


@given(numbers, numbers)
def test_progress_round_trips(transaction: int, stream_time: int) -> None:
    progress = Progress(transaction, stream_time)
    assert Progress.parse(str(progress)) == progress
    assert Progress.parse(f"{progress}\0") == progress


def test_foreign_metadata_is_no_progress() -> None:
    assert Progress.parse("") == Progress.parse("something;else;entirely") == Progress()


def test_the_latest_transaction_of_a_task_counts() -> None:
    positions = [
        Position("a", 0, 5, str(Progress(3, 30))),
        Position("b", 0, 9, str(Progress(4, 20))),
        Position("c", 0, None),
    ]
    assert latest(positions) == Progress(4, 20)


def test_a_slow_round_stretches_the_interval() -> None:
    now = [0.0]
    interval = CommitInterval(0.1, 10, lambda: now[0])
    assert not interval.is_due()
    now[0] = 0.1
    assert interval.is_due()
    rounds_took(interval, 0.2)
    assert interval.remaining_seconds() == pytest.approx(0.6)
    interval.round_took(0.01, backlog=True)
    assert interval.remaining_seconds() == pytest.approx(0.1)
    rounds_took(interval, 60)
    assert interval.remaining_seconds() == pytest.approx(10)


def test_a_slow_round_stretches_nothing_where_no_work_waits() -> None:
    interval = CommitInterval(0.1, 10, lambda: 0.0)
    rounds_took(interval, 0.2)
    interval.round_took(0.2, backlog=False)
    assert interval.remaining_seconds() == pytest.approx(0.1)


def test_rounds_that_waited_for_a_broker_do_not_put_off_the_next() -> None:
    interval = CommitInterval(0.1, 10, lambda: 0.0)
    for seconds in (0.02, 4.0, 0.02, 4.0, 4.0):
        interval.round_took(seconds, backlog=True)
        assert interval.remaining_seconds() == pytest.approx(0.1)


def test_only_a_stretch_that_lasts_is_news_and_only_once() -> None:
    interval = CommitInterval(0.1, 10, lambda: 0.0)
    told = [interval.round_took(0.2, backlog=True) for _ in range(20)]
    assert [seconds for seconds in told if seconds] == [pytest.approx(0.6)]
    assert told[0] is None
    interval.round_took(0.01, backlog=True)
    assert interval.round_took(0.5, backlog=True) is None


def rounds_took(interval: CommitInterval, seconds: float) -> None:
    for _ in range(RECENT):
        interval.round_took(seconds, backlog=True)
