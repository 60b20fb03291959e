"""Sources that pause while their workers are killed or suspended: no time passes without them."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.applications.paused_sources import PausedSources, Schedule
from tests.support.applications.pipeline import Pipeline

SETTINGS = ("worker.session_timeout_seconds=6",)
"""So that a takeover comes soon; how long sources count as idle is left to the defaults."""

START_MS = 1_700_000_000_000


@pytest.fixture
def sources(make_pipeline: Callable[..., Pipeline]) -> PausedSources:
    made = make_pipeline(PausedSources)
    assert isinstance(made, PausedSources)
    return made


def found_after(sources: PausedSources, schedule: Schedule) -> list[str]:
    """Play a schedule over two workers; return what differs from a run without faults."""
    sources.start_both(SETTINGS)
    [after] = sources.play(schedule)
    assert after > 10 or schedule.fault is None, "the partition went on after the fault"
    return [*sources.findings()]


def test_a_killed_upstream_task_lets_no_time_pass_without_its_records(
    sources: PausedSources,
) -> None:
    assert found_after(sources, Schedule(fault=signal.SIGKILL)) == []


@pytest.mark.exhaustive
def test_a_suspended_upstream_task_lets_no_time_pass_without_its_records(
    sources: PausedSources,
) -> None:
    assert found_after(sources, Schedule(fault=signal.SIGSTOP, ends_at=124)) == []


@pytest.mark.exhaustive
def test_records_of_an_open_transaction_hold_time(sources: PausedSources) -> None:
    """The last stable offset is reached, and the log goes on."""
    assert found_after(sources, Schedule(5, 5, ends_at=60, per_transaction=30)) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(12))
def test_random_pauses_faults_and_transactions_change_no_result(
    sources: PausedSources, seed: int
) -> None:
    schedule = Schedule.drawn(seed)
    sources.start_both(SETTINGS)
    sources.play(schedule)
    assert [*sources.findings()] == [], schedule


@pytest.mark.exhaustive
def test_a_run_until_caught_up_leaves_time_where_the_slowest_source_is(
    sources: PausedSources,
) -> None:
    """Two scheduled runs; the second one has records of both partitions again."""
    for part in range(2):
        numbers = range(part * 25, part * 25 + 25)
        sources.feed_at(0, [START_MS + n * 2000 for n in numbers])
        sources.feed_at(1, [START_MS + n * 1000 for n in numbers])
        sources.finish()
    sources.end()
    sources.start_worker()
    assert [*sources.findings()] == []
