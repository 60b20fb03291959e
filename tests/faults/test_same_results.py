"""Orders and payments behind repartition topics: the same results live and as a backlog."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tests.support.applications.fed_orders import NEVER_IDLE, QUICK, Orders
from tests.support.applications.orders import (
    HOUR_MS,
    TOPOLOGY,
    Event,
    ends,
    events,
    expected,
)
from tests.support.applications.pipeline import Pipeline, WorkerProcess

RUNS: Sequence[Sequence[str]] = (
    (),
    (),
    ("worker.max_task_idle_seconds=5",),
    ("worker.max_task_idle_seconds=0.1", "worker.watermark_interval_seconds=2"),
)
"""Settings of the backlogs that are compared: the defaults twice, and other idle times."""


@pytest.fixture
def orders(make_pipeline: Callable[..., Pipeline]) -> Orders:
    return Orders(make_pipeline(topology=TOPOLOGY))


def halted(worker: WorkerProcess) -> None:
    """End a worker that does nothing wrong."""
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]


def late_of(worker: WorkerProcess) -> Counter[str]:
    """Return how many late records a worker named, by topic."""
    found: Counter[str] = Counter()
    for event in worker.events("late_records"):
        found[str(event["topic"])] += int(str(event["new"]))
    return found


def expected_late(given: Sequence[Event]) -> list[int]:
    """Return the number of late orders and of late payments."""
    late = [event for event in given if event.time + 4 * HOUR_MS < event.written]
    return sorted(Counter(event.topic for event in late).values())


def test_a_backlog_has_the_results_that_follow_from_the_input(orders: Orders) -> None:
    given = events(1, 600)
    orders.feed([*given, *ends()])
    worker = orders.pipeline.start_worker(settings=[NEVER_IDLE, *QUICK])
    assert orders.wait_for(expected(given)) == expected(given)
    halted(worker)


def test_a_live_feed_has_the_results_that_follow_from_the_input(orders: Orders) -> None:
    given = events(1, 600)
    worker = orders.pipeline.start_worker(settings=[NEVER_IDLE, *QUICK])
    for start in range(0, len(given), 100):
        orders.feed(given[start : start + 100])
        time.sleep(0.2)
    orders.feed([*ends()])
    assert orders.wait_for(expected(given)) == expected(given)
    halted(worker)


@pytest.mark.exhaustive
def test_five_runs_of_the_same_input_are_equal(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """Fed live, and four times as a backlog; each result and each late record is compared."""
    given = events(5, 3000)
    worlds = [Orders(make_pipeline(topology=TOPOLOGY)) for _ in range(1 + len(RUNS))]
    live, *backlogs = worlds
    workers = [live.pipeline.start_worker(settings=[NEVER_IDLE, *QUICK])]
    live.feed_live(given, seed=5)
    assert live.wait_for(expected(given), 180) == expected(given)
    for orders, settings in zip(backlogs, RUNS, strict=True):
        orders.feed([*given, *ends()])
        workers.append(orders.pipeline.start_worker(settings=settings))
        assert orders.wait_for(expected(given), 180) == expected(given)
    for worker in workers:
        halted(worker)
        assert worker.events("results_depend_on_pauses") == []
        assert sorted(late_of(worker).values()) == expected_late(given)
    records = [orders.records() for orders in worlds]
    assert all(one == records[0] for one in records)
    paid, alone = (
        sum(None not in r for r in expected(given)),
        sum(None in r for r in expected(given)),
    )
    assert min(paid, alone, *expected_late(given)) > 100


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
def test_kills_and_four_workers_change_no_result(orders: Orders, seed: int) -> None:
    draw, given = random.Random(seed), events(seed, 4000)
    settings = [NEVER_IDLE, *QUICK, "worker.session_timeout_seconds=6"]
    workers = [orders.pipeline.start_worker(settings=settings, instance=f"w{n}") for n in range(4)]
    for start in range(0, len(given), 500):
        orders.feed(given[start : start + 500])
        number = draw.randrange(4)
        workers[number].signal(signal.SIGKILL)
        workers[number].wait()
        time.sleep(draw.random())
        workers[number] = orders.pipeline.start_worker(settings=settings, instance=f"w{number}")
    orders.feed([*ends()])
    assert orders.wait_for(expected(given), 180) == expected(given)
    for worker in workers:
        halted(worker)
