"""A figure that rises to the end of a process's life is a trend; caches and noise are none."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from tests.soak.resources import JUDGED_SECONDS, SAMPLE_SECONDS, Sample, judge

MIB = 2**20
HOUR = 3600.0


def life(
    seconds: float,
    memory: Callable[[float], float],
    *,
    used: Callable[[float], float] = lambda at: 40.0,
    pid: int = 7,
    threads: float = 0.0,
    started_at: float = 0.0,
) -> list[Sample]:
    """Sample a process with so much memory in MiB at each second, and threads that it gains."""
    draw = random.Random(1)
    times = [n * SAMPLE_SECONDS for n in range(int(seconds / SAMPLE_SECONDS) + 1)]
    return [
        Sample(
            at,
            "3",
            pid,
            started_at,
            int((memory(at) + draw.uniform(-3, 3)) * MIB),
            int((used(at) + draw.uniform(-3, 3)) * MIB),
            0,
            0,
            0,
            0.0,
            60 + draw.choice((0, 0, 9)),
            int(30 + draw.choice((0, 4)) + threads * at),
        )
        for at in times
    ]


def filling(at: float) -> float:
    """Memory of a cache that is full after some minutes."""
    return 160 - 40 * math.exp(-at / 60)


def test_a_cache_that_fills_is_no_trend() -> None:
    told, rising = judge(life(600, filling))
    assert not rising
    assert "over 600 s" in told


@pytest.mark.parametrize(("seconds", "mib_per_hour"), [(HOUR / 2, 80.0), (HOUR, 40.0)])
def test_memory_that_rises_to_the_end_is_a_trend(seconds: float, mib_per_hour: float) -> None:
    _, rising = judge(life(seconds, lambda at: filling(at) + mib_per_hour * at / HOUR))
    assert len(rising) == 1
    assert "rss_bytes" in rising[0]


def test_memory_is_not_judged_in_minutes() -> None:
    told, rising = judge(life(600, lambda at: filling(at) + 240 * at / HOUR))
    assert not rising
    assert "rss_bytes" in told


def test_memory_in_use_that_rises_is_a_trend_also_if_resident_memory_does_not() -> None:
    _, rising = judge(life(HOUR, lambda at: 200.0, used=lambda at: 40 + 40 * at / HOUR))
    assert len(rising) == 1
    assert "used_bytes" in rising[0]


def test_threads_that_rise_to_the_end_are_a_trend() -> None:
    _, rising = judge(life(600, filling, threads=0.05))
    assert len(rising) == 1
    assert "threads" in rising[0]


def test_the_process_that_lived_longest_is_judged() -> None:
    leaking = life(JUDGED_SECONDS - 20, lambda at: at, pid=1)
    told, rising = judge([*leaking, *life(600, filling, pid=2)])
    assert "process 2" in told
    assert not rising


def test_processes_that_had_one_id_after_the_other_are_two() -> None:
    """In an hour of restarts ids come again (seen): one life of 47 minutes was two of seconds."""
    early = life(60, filling, started_at=1.0)
    late = [s._replace(at_seconds=s.at_seconds + 2800) for s in life(60, filling, started_at=2.0)]
    told, _ = judge([*early, *late])
    assert "no trend is judged" in told


def test_tasks_that_come_and_go_are_no_trend() -> None:
    def memory(at: float) -> float:
        return filling(at) + (at / 100 if at % 120 > 40 else 0)

    _, rising = judge(life(HOUR, memory))
    assert not rising


def test_a_process_that_lived_for_seconds_is_not_judged() -> None:
    told, rising = judge(life(JUDGED_SECONDS - 20, lambda at: at))
    assert "no trend is judged" in told
    assert not rising


def test_tasks_that_are_lost_less_often_towards_the_end_are_no_trend() -> None:
    """An hour had minima of descriptors that rose from 45 to 70, and medians of 76 all along."""

    def memory(at: float) -> float:
        return 160 - (40 - 40 * at / HOUR if at % 120 < 40 else 0)

    _, rising = judge(life(HOUR, memory))
    assert not rising
