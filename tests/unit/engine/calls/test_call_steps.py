"""Steps that call a coroutine: the same outputs as those of functions, whatever calls end first."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections import Counter
from typing import Any

import pytest

from eosframework import Topology, dead_letter
from eosframework.errors import RecordFailed, RunError
from eosframework.testing import (
    TopologyDriver,
    TopologyTestDriver,
    crash_everywhere,
    cut_everywhere,
)
from eosframework.topology.resolve.resolve import resolve

pytestmark = pytest.mark.enable_socket  # An event loop has a pair of its own.

RECORDS = 60
KEYS = 5


class Service:
    """A service whose answers take as long as a seed says; it notes what is asked.

    Args:
        seed: of the delays.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.asked: list[int] = []
        self.at_once = 0
        self._now = Counter[int]()
        self.serial = True

    async def answer(self, n: int) -> None:
        self.asked.append(n)
        self.serial = self.serial and not self._now[n % KEYS]
        self._now[n % KEYS] += 1
        self.at_once = max(self.at_once, sum(self._now.values()))
        try:
            await asyncio.sleep(random.Random(f"{self._seed} {n}").choice([0, 0.001, 0.05, 1.0]))
        finally:
            self._now[n % KEYS] -= 1


def shaped(value: dict[str, int]) -> dict[str, int]:
    if value["n"] % 11 == 3:
        raise ValueError("not served")
    return {**value, "priced": value["n"] * 2}


def wanted(value: dict[str, int]) -> bool:
    return value["n"] % 3 != 0


def several(value: dict[str, int]) -> list[dict[str, int]]:
    return [{**value, "part": part} for part in range(value["n"] % 3)]


def topology(service: Service | None, **options: Any) -> Topology:
    """Return steps with calls, or with functions that do the same."""

    async def shape(value: dict[str, int]) -> dict[str, int]:
        assert service is not None
        await service.answer(value["n"])
        return shaped(value)

    async def is_wanted(value: dict[str, int]) -> bool:
        assert service is not None
        await service.answer(value["n"] + 1)
        return wanted(value)

    app = Topology("app")
    numbers = app.stream("in", key=str, value="json", name="numbers").on_error(dead_letter("dead"))
    numbers.map_values(lambda value: value["n"]).to("plain", value="json")
    parts = numbers.filter(lambda value: value["n"] != 7).flat_map_values(several)
    if service is None:
        priced = parts.map_values(shaped)
        kept = priced.map_values(dict).filter(wanted)
    else:
        priced = parts.map_async(shape, **options)
        kept = priced.map_values(dict).filter_async(is_wanted, **options)
    priced.to("priced")
    kept.to("kept")
    kept.group_by(lambda record: record.key, name="by_key").count(store="counts").to("counts")
    return app


def outputs(app: Topology, **options: Any) -> dict[str, Any]:
    driver = TopologyTestDriver(app, partitions=3, **options)
    for n in range(RECORDS):
        driver.send("in", {"n": n}, key=f"k{n % KEYS}", timestamp=1000 * n)
    driver.run()
    topics = ("plain", "priced", "kept", "dead")
    found: dict[str, Any] = {
        topic: [(r.key, r.value, r.timestamp, r.partition) for r in driver.read(topic)]
        for topic in topics
    }
    return {**found, "counts": driver.state("counts")}


@pytest.mark.parametrize("order", ["input", "key"])
@pytest.mark.parametrize("seed", range(5))
def test_outputs_are_those_of_functions_whatever_ends_first(order: str, seed: int) -> None:
    service = Service(seed)
    found = outputs(topology(service, order=order, concurrency=8))
    assert found == outputs(topology(None))
    assert service.asked != sorted(service.asked), "calls overtook one another"
    assert 1 < service.at_once <= 16, "two steps, each with eight calls"


def test_calls_of_one_key_are_serial() -> None:
    """By order of keys, they never overlap; in input order they do."""

    def serial(order: str) -> bool:
        service = Service(1)

        async def ask(value: dict[str, int]) -> None:
            await service.answer(value["n"])

        app = Topology("app")
        app.stream("in", key=str, value="json").for_each_async(ask, order=order)  # pyright: ignore[reportArgumentType]
        driver = TopologyTestDriver(app, partitions=3)
        for n in range(RECORDS):
            driver.send("in", {"n": n}, key=f"k{n % KEYS}")
        driver.run()
        assert sorted(service.asked) == list(range(RECORDS))
        by_key = [[n for n in service.asked if n % KEYS == key] for key in range(KEYS)]
        assert all(asked == sorted(asked) for asked in by_key)
        return service.serial

    assert serial("key")
    assert not serial("input")


def test_a_crash_anywhere_leaves_nothing_out_and_nothing_twice() -> None:
    def send(driver: TopologyTestDriver) -> None:
        for n in range(12):
            driver.send("in", {"n": n}, key=f"k{n % KEYS}", timestamp=1000 * n)
        driver.run()

    crash_everywhere(topology(Service(2), concurrency=4), send)


def test_results_do_not_depend_on_how_records_are_cut() -> None:
    def send(driver: TopologyTestDriver) -> None:
        for n in range(12):
            driver.send("in", {"n": n}, key=f"k{n % KEYS}", timestamp=1000 * n)
        driver.run()

    cut_everywhere(topology(Service(3), concurrency=4), send)


def test_a_hanging_call_holds_back_its_partition_alone() -> None:
    async def hang_at_four(value: dict[str, int]) -> dict[str, int]:
        if value["n"] == 4:
            await asyncio.sleep(20)
        return value

    app = Topology("app")
    app.stream("in", key=str, value="json").map_async(hang_at_four).to("out")
    driver = TopologyTestDriver(app, partitions=2)
    for n in range(10):
        driver.send("in", {"n": n}, partition=n % 2)
    while driver.now < 5:
        driver.turn()
    assert [r.value["n"] for r in driver.read("out")] == [0, 2, 1, 3, 5, 7, 9]
    driver.run()
    assert driver.now >= 20
    assert [r.value["n"] for r in driver.read("out")] == [4, 6, 8]


def test_a_hanging_call_holds_back_no_other_source_of_a_task_without_state() -> None:
    async def hang_at_four(value: dict[str, int]) -> dict[str, int]:
        await asyncio.sleep(20 if value["n"] == 4 else 0)
        return value

    app = Topology("app")
    first, second = (app.stream(topic, key=str, value="json") for topic in ("a", "b"))
    first.merge(second).map_async(hang_at_four).to("out")
    driver = TopologyTestDriver(app)
    for n in range(10):
        driver.send("ab"[n % 2], {"n": n}, timestamp=n)
    while driver.now < 5:
        driver.turn()
    assert sorted(r.value["n"] for r in driver.read("out")) == [0, 1, 2, 3, 5, 7, 9]


def run_one(function: Any, *, count: int = 1, **options: Any) -> TopologyTestDriver:
    app = Topology("app")
    numbers = app.stream("in", key=str, value="json").on_error(dead_letter("dead"))
    numbers.map_async(function, **options).to("out")
    driver = TopologyTestDriver(app)
    for n in range(count):
        driver.send("in", {"n": n})
    driver.run()
    return driver


def reason(driver: TopologyTestDriver) -> str:
    [letter] = driver.read("dead")
    headers = dict(letter.headers)
    return b" ".join(v for k, v in headers.items() if v is not None and "exception" in k).decode()


def test_a_call_that_outlasts_its_timeout_has_failed() -> None:
    async def never(value: Any) -> Any:
        await asyncio.sleep(3600)

    driver = run_one(never, timeout="2s")
    assert "TimeoutError" in reason(driver)
    assert 2 <= driver.now < 3


def test_a_coroutine_that_swallows_its_cancellation_is_left_alone() -> None:
    async def stubborn(value: Any) -> Any:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    driver = run_one(stubborn, timeout="2s", concurrency=2)
    assert "TimeoutError" in reason(driver)
    with pytest.raises(RunError, match="2 coroutines that swallow their cancellation"):
        run_one(stubborn, timeout="2s", concurrency=2, count=4)


def test_a_result_that_comes_after_the_timeout_does_not_count() -> None:
    async def late(value: Any) -> Any:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return value

    assert "TimeoutError" in reason(run_one(late, timeout="2s"))


def test_what_gives_no_coroutine_after_all_has_failed() -> None:
    class Changed:
        async def __call__(self, value: Any) -> Any: ...

    changed = Changed()
    app = Topology("app")
    app.stream("in", key=str, value="json").on_error(dead_letter("dead")).map_async(changed).to(
        "out"
    )
    driver = TopologyTestDriver(app)
    setattr(Changed, "__call__", lambda self, value: value)  # noqa: B010 - not as declared
    driver.send("in", {"n": 0})
    driver.run()
    assert "returned dict, which is no coroutine" in reason(driver)


def test_a_system_exit_in_a_coroutine_is_a_failure_of_its_record() -> None:
    async def leave(value: Any) -> Any:
        sys.exit("enough")

    assert "SystemExit: enough" in reason(run_one(leave))


def test_a_none_that_the_annotation_excludes_is_a_failure() -> None:
    async def forgetful(value: dict[str, int]) -> dict[str, int]:
        return None  # type: ignore[return-value]

    assert "returned None, which its annotation excludes" in reason(run_one(forgetful))


def test_further_attempts_follow_their_pauses() -> None:
    attempts: list[float] = []

    async def third_time(value: Any) -> Any:
        attempts.append(asyncio.get_running_loop().time())
        if len(attempts) < 3:
            raise ConnectionError("away")
        return value

    driver = run_one(third_time, retry=["1s", "5s"])
    assert [r.value for r in driver.read("out")] == [{"n": 0}]
    first, second, third = attempts
    assert 1 <= second - first < 1.2
    assert 4.99 <= third - second < 5.2


def test_no_attempt_follows_the_last_one() -> None:
    async def away(value: Any) -> Any:
        raise ConnectionError("away")

    assert "away" in reason(run_one(away, retry="1s"))


def test_a_rate_is_kept() -> None:
    times: list[float] = []

    async def ask(value: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return value

    run_one(ask, rate=10, count=30)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert 2.85 <= times[-1] - times[0] < 3.2
    assert min(gaps) > 0


def test_a_failed_call_ends_the_task_after_what_came_before_it() -> None:
    async def refuse_three(value: Any) -> Any:
        await asyncio.sleep(1 / (1 + value["n"]))
        if value["n"] == 3:
            raise ValueError("not three")
        return value

    app = Topology("app")
    app.stream("in", key=str, value="json").map_async(refuse_three).to("out")
    driver = TopologyTestDriver(app)
    for n in range(6):
        driver.send("in", {"n": n})
    with pytest.raises(RecordFailed, match=r"in\[0\]@3 failed in step .*not three"):
        driver.run()


def test_a_driver_of_single_records_waits_for_their_calls() -> None:
    async def double(value: dict[str, int]) -> dict[str, int]:
        await asyncio.sleep(0.01)
        return {"n": value["n"] * 2}

    app = Topology("app")
    app.stream("in", key=str, value="json").map_async(double).to("out")
    driver = TopologyDriver(resolve(app.loaded()))
    assert [r.value for r in driver.send("in", {"n": 4})] == [{"n": 8}]
