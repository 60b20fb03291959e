from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from eosframework.errors import DatabaseUnavailable, Retriable
from eosframework.postgres.tables.position_claims import Outage


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


GONE = DatabaseUnavailable("could not write: gone", reason="gone", sqlstate="57P01")


def test_pauses_double_up_to_the_longest() -> None:
    outage = Outage(longest_pause_seconds=1, chance=lambda: 0)

    pauses = [outage.failed(GONE) for _ in range(7)]

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1]


@given(chances=st.lists(st.floats(0, 1), min_size=1, max_size=100), longest=st.floats(0.01, 60))
def test_every_pause_is_within_half_of_the_longest(chances: list[float], longest: float) -> None:
    chance = iter(chances)
    outage = Outage(longest_pause_seconds=longest, chance=lambda: next(chance))

    pauses = [outage.failed(GONE) for _ in chances]

    assert all(0 < pause <= longest for pause in pauses)
    assert all(pause >= min(0.025, longest / 2) for pause in pauses)


def test_the_next_attempt_is_due_when_the_pause_is_over() -> None:
    clock = Clock()
    outage = Outage(longest_pause_seconds=5, clock=clock, chance=lambda: 0)
    assert outage.is_due()

    outage.failed(GONE)

    assert outage.unavailable == "the database is unavailable"
    assert not outage.is_due()
    assert outage.remaining_seconds() == pytest.approx(0.05)
    clock.now += 0.06
    assert outage.is_due()
    assert outage.remaining_seconds() == 0


def test_an_outage_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    clock = Clock()
    outage = Outage(longest_pause_seconds=5, clock=clock)

    with capture_logs() as events:
        outage.over()
        for _ in range(3):
            outage.failed(GONE)
        clock.now += 7
        outage.over()
        outage.over()

    away, back = events
    assert away["event"] == "database_unavailable"
    assert away["error"] == "could not write: gone"
    assert back["event"] == "database_available"
    assert (back["after_seconds"], back["attempts"]) == (7, 3)


def test_the_pauses_begin_anew_after_an_outage() -> None:
    outage = Outage(longest_pause_seconds=5, chance=lambda: 0)
    for _ in range(5):
        outage.failed(GONE)
    outage.over()

    assert outage.failed(GONE) == 0.05


def test_brokers_that_do_not_answer_are_not_reported_as_the_database() -> None:
    outage = Outage(longest_pause_seconds=5)
    with capture_logs() as events:
        outage.failed(Retriable("no answer"))
        assert outage.unavailable == "the cluster is unavailable"
        outage.over()
    assert [event["event"] for event in events] == ["cluster_unavailable", "cluster_available"]
