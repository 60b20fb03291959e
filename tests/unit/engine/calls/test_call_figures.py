"""The figures of calls: in flight, waiting, durations, timeouts and further attempts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eosframework import Topology
from eosframework.engine.calls.call_figures import CallSnapshot
from eosframework.testing import TopologyTestDriver

pytestmark = pytest.mark.enable_socket  # An event loop has a pair of its own.


def figures(driver: TopologyTestDriver) -> CallSnapshot:
    worker: Any = driver._worker  # pyright: ignore[reportPrivateUsage]
    [found] = worker.view().calls.values()
    return found


def made(call: Any, **options: Any) -> TopologyTestDriver:
    app = Topology("app")
    calls = app.stream("in", key=str, value="json").map_async(call, **options)
    calls.on_error("skip").to("out")
    return TopologyTestDriver(app)


def test_a_step_has_figures_before_its_first_call() -> None:
    async def call(value: Any) -> Any:
        return value

    found = figures(made(call))
    assert (found.in_flight, found.waiting, found.timeouts, found.retries) == (0, 0, 0, 0)
    assert sum(found.seconds.counts) == 0


def test_calls_are_in_flight_up_to_the_concurrency_and_the_others_wait() -> None:
    async def call(value: Any) -> Any:
        await asyncio.sleep(5)
        return value

    driver = made(call, concurrency=3)
    for n in range(8):
        driver.send("in", n, key="k")
    while driver.now < 1:
        driver.turn()
    # Until the size of a result is known, records are called for up to twice the concurrency.
    assert (figures(driver).in_flight, figures(driver).waiting) == (3, 3)
    driver.run()
    found = figures(driver)
    assert (found.in_flight, found.waiting) == (0, 0)
    assert sum(found.seconds.counts) == 8
    assert 8 * 5 <= found.seconds.total < 8 * 6


@pytest.mark.parametrize("order", ["input", "key"])
def test_what_an_abort_drops_waits_no_more(order: str) -> None:
    async def call(value: Any) -> Any:
        await asyncio.sleep(5)
        return value

    driver = made(call, concurrency=3, order=order)
    for n in range(8):
        driver.send("in", n, key="k")
    while driver.now < 1:
        driver.turn()
    worker: Any = driver._worker  # pyright: ignore[reportPrivateUsage]
    for task in worker.tasks.values():
        task.drop()
    for _ in range(5):
        driver._calls._loop.step()  # type: ignore[union-attr]  # pyright: ignore
    found = figures(driver)
    assert (found.in_flight, found.waiting) == (0, 0)


def test_timeouts_and_further_attempts_are_counted() -> None:
    async def call(value: Any) -> Any:
        await asyncio.sleep(60 if value == 1 else 0)
        return value

    driver = made(call, timeout="1s", retry=["100ms", "100ms"])
    for n in range(3):
        driver.send("in", n, key="k")
    driver.run()
    found = figures(driver)
    assert (found.timeouts, found.retries) == (3, 2)
    assert sum(found.seconds.counts) == 2 + 3
    assert len(driver.read("out")) == 2
