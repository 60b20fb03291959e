"""A coroutine that takes the values of several records (BC1 to BC3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eosframework import Topology, dead_letter
from eosframework.errors import RecordFailed
from eosframework.testing import TopologyTestDriver, crash_everywhere

pytestmark = pytest.mark.enable_socket  # An event loop has a pair of its own.

RECORDS = 100


class Model:
    """A service for lists; it notes the sizes of what it is asked."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.cancelled = 0

    async def double(self, values: list[int]) -> list[int]:
        self.sizes.append(len(values))
        await asyncio.sleep(values[0] % 7 / 100)
        return [2 * n for n in values]

    async def hang_at_five(self, values: list[int]) -> list[int]:
        try:
            await asyncio.sleep(60 if 5 in values else 0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return values


def topology(function: Any, policy: Any = "fail", **options: Any) -> Topology:
    app = Topology("app")
    numbers = app.stream("in", key=str, value="json")
    numbers.map_batch_async(function, **options).on_error(policy).to("out", value="json")
    return app


def send(driver: TopologyTestDriver, records: int = RECORDS) -> None:
    for n in range(records):
        driver.send("in", n, key=str(n % 3))
    driver.run()


def test_records_are_called_for_in_batches_and_keep_their_order() -> None:
    model = Model()
    driver = TopologyTestDriver(topology(model.double, batch=10, concurrency=40))
    send(driver)
    assert [record.value for record in driver.read("out")] == [2 * n for n in range(RECORDS)]
    assert max(model.sizes) == 10
    assert sum(model.sizes) == RECORDS
    assert len(model.sizes) < RECORDS / 3


def test_a_crash_at_any_step_changes_no_output() -> None:
    def scenario(driver: TopologyTestDriver) -> None:
        send(driver, 20)

    assert crash_everywhere(topology(Model().double, batch=4), scenario) > 3


@pytest.mark.parametrize(
    ("results", "message"),
    [([1], "returned 1 results for"), ("ab", "returned str for"), (None, "returned NoneType for")],
)
def test_a_wrong_number_of_results_is_an_error_of_the_records(results: Any, message: str) -> None:
    async def wrong(values: list[int]) -> list[int]:
        return results

    driver = TopologyTestDriver(topology(wrong, batch=5))
    with pytest.raises(RecordFailed, match=message):
        send(driver, 5)


def test_an_error_of_a_batch_is_that_of_its_records_alone() -> None:
    async def refuse(values: list[int]) -> list[int]:
        if 7 in values:
            raise ValueError("not seven")
        return values

    driver = TopologyTestDriver(topology(refuse, dead_letter("dead"), batch=5, concurrency=5))
    send(driver, 20)
    letters = driver.read("dead")
    assert b"7" in {letter.value for letter in letters}
    assert len(letters) <= 5
    assert len(driver.read("out")) == 20 - len(letters)


def test_a_batch_that_hangs_is_cancelled_with_its_last_call() -> None:
    model = Model()
    policy = dead_letter("dead")
    app = topology(model.hang_at_five, policy, batch=4, concurrency=4, timeout="1s")
    driver = TopologyTestDriver(app)
    send(driver, 12)
    letters = driver.read("dead")
    assert b"5" in {letter.value for letter in letters}
    assert len(driver.read("out")) == 12 - len(letters)
    assert model.cancelled == 1
