"""Charts: values lie at their times, gaps stay open, and the memory is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eosframework.operations.console.charts import HEIGHT, WIDTH, charts_of, rounded_up
from eosframework.operations.console.memory import (
    COARSE_POINTS,
    FINE_POINTS,
    SAMPLE_SECONDS,
    SAMPLES,
    Memory,
    Point,
)
from eosframework.serialization.bounds import SERIES
from tests.support.applications.fed_console import metrics_text


def test_a_line_ends_at_the_right_border_and_has_no_line_over_a_gap() -> None:
    points = [Point(at, lag=lag) for at, lag in ((0, 10), (10, 20), (900, 40), (1800, 50))]
    [_, lag, latency, _] = charts_of(points, 1800.0, 1800.0)
    [line] = lag.lines
    assert line.path == "M0.0,96.0 L3.3,72.0 M300.0,24.0 M600.0,0.0"
    assert (line.latest, line.largest, lag.top) == (50, 50, 50)
    assert (WIDTH, HEIGHT) == (600, 120)
    assert "Lag of the last 30 minutes: lag now 50, at most 50" in lag.about
    assert not latency.is_known
    assert "not known yet" in latency.about


@given(st.floats(1e-9, 1e15))
def test_the_upper_border_is_not_below_a_value_and_not_far_above(value: float) -> None:
    assert value <= rounded_up(value) * (1 + 1e-6)
    assert rounded_up(value) <= value * 2.6


def test_points_have_rates_and_quantiles_of_the_last_minute_and_their_number_is_bounded() -> None:
    memory = Memory()
    steps = FINE_POINTS + SAMPLES
    for step in range(steps):
        memory.take("a:1", step * SAMPLE_SECONDS, metrics_text(step, 0, 1))
        memory.add_point(step * SAMPLE_SECONDS, 7.0, None)
    fine, coarse = memory.points(hours=False), memory.points(hours=True)
    assert len(fine) == FINE_POINTS
    assert len(coarse) == (steps * SAMPLE_SECONDS) // 60 + 1 < COARSE_POINTS
    point = fine[-1]
    assert point.read is not None
    assert 1000 < point.read < 1400
    assert point.commit_median is not None
    assert 0 < point.commit_median <= 0.025
    assert point.commit_slow is not None
    assert point.commit_slow > point.commit_median
    assert point.lag == 7.0
    [(_, kept)] = memory.series("fences_total", 0.0)
    assert len(kept) == SAMPLES


def test_records_are_counted_from_kafka_if_no_process_is_asked() -> None:
    memory = Memory()
    memory.add_point(0.0, 3.0, 12.5)
    assert memory.points(hours=False) == [Point(0.0, read=12.5, lag=3.0)]


def test_the_series_of_a_process_are_bounded_and_known_ones_go_on() -> None:
    memory = Memory()
    for at in (0.0, 10.0):
        lines = (
            f'eosframework_lag_records{{application="a",topic="t{number}"}} {number}'
            for number in range(SERIES.value + 100)
        )
        memory.take("a:1", at, "\n".join(lines) + "\n")
    found = list(memory.latest("lag_records"))
    assert len(found) == SERIES.value - 1, "one series is that of `up`"
    assert found[-1][1] == SERIES.value - 2
