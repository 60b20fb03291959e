"""Held results are bounded in number and bytes, however long the first call takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eosframework import Topology
from eosframework.engine.calls.flights import size_of
from eosframework.engine.calls.landing import AHEAD_RECORDS
from eosframework.testing import TopologyTestDriver

pytestmark = pytest.mark.enable_socket  # An event loop has a pair of its own.


def run(answer: Any, limit_bytes: int) -> tuple[int, int]:
    """Return the most calls that were begun while the first one hung, and the bytes held then."""
    begun = 0

    async def call(value: dict[str, int]) -> Any:
        nonlocal begun
        begun += 1
        await asyncio.sleep(25 if value["n"] == 0 else 0.001)
        return answer

    app = Topology("app")
    app.stream("in", key=str, value="json").map_async(call, concurrency=8).to("out")
    driver = TopologyTestDriver(app)
    for n in range(3 * AHEAD_RECORDS):
        driver.send("in", {"n": n})
    runner: Any = driver._calls  # pyright: ignore[reportPrivateUsage]
    runner._limit_bytes = limit_bytes
    while driver.now < 20:
        driver.turn()
    found = begun, runner.held_bytes
    driver.run()
    assert len(driver.read("out")) == 3 * AHEAD_RECORDS
    assert (runner.held_bytes, runner.in_flight) == (0, 0)
    return found


def test_small_results_are_bounded_in_number() -> None:
    begun, _ = run(1, 2**30)
    assert begun == AHEAD_RECORDS


def test_large_results_are_bounded_in_bytes() -> None:
    begun, held_bytes = run({"text": "x" * 100_000}, 2_000_000)
    assert 10 < begun < 40
    assert held_bytes <= 2_000_000


@pytest.mark.parametrize(
    ("value", "at_least"),
    [
        (b"x" * 10_000, 10_000),
        ("x" * 10_000, 10_000),
        ({"a": ["x" * 100] * 100}, 10_000),
        ([{"n": n, "text": "x" * 90} for n in range(1000)], 90_000),
        (1, 1),
        (None, 1),
    ],
)
def test_a_result_is_measured(value: object, at_least: int) -> None:
    assert at_least <= size_of(value) < 6 * at_least + 200
