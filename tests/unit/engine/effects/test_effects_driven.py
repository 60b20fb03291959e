"""Steps whose calls take effect once, in the driver: keys, attempts, doubts and crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from eosframework import Effect, Topology, dead_letter
from eosframework.engine.effects.entries import RESULT_BYTES, EntryState, read_entry
from eosframework.errors import ConfigurationError, EffectUnusable, RecordFailed
from eosframework.testing import TopologyDriver, TopologyTestDriver, crash_everywhere
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions import failpoints

pytestmark = pytest.mark.enable_socket  # An event loop has a pair of its own.

Value = dict[str, Any]


class Service:
    """A service; `honours` keys or makes an effect for each call."""

    def __init__(self, *, honours: bool = True) -> None:
        self.made = Counter[str]()
        self.attempts: list[tuple[str, int]] = []
        self.looked_up: list[tuple[str, int]] = []
        self.fails = 0
        self._honours = honours

    def charge(self, value: Value, effect: Effect) -> Value:
        self.attempts.append((effect.key, effect.attempt))
        if not (self._honours and self.made[effect.key]):
            self.made[effect.key] += 1
        if self.fails:
            self.fails -= 1
            raise ConnectionResetError("no answer")
        return {"paid": value["n"]}

    async def charge_later(self, value: Value, effect: Effect) -> Value:
        await asyncio.sleep(0.01 * (value["n"] % 3))
        return self.charge(value, effect)

    def look_up(self, value: Value, effect: Effect) -> Value | None:
        self.looked_up.append((effect.key, effect.attempt))
        return {"paid": value["n"]} if self.made[effect.key] else None


def charged(call: Any, *, dead: bool = False, **options: Any) -> Topology:
    app = Topology("shop")
    stream = app.stream("orders", key=str, value="json")
    if dead:
        stream = stream.on_error(dead_letter("dead"))
    stream.call_once(call, name="charge", **options).named("paid").to("paid")
    return app


def send(driver: TopologyTestDriver, *numbers: int) -> None:
    for n in numbers:
        driver.send("orders", {"n": n}, key="anna")
    driver.run()


def values(driver: TopologyTestDriver, topic: str = "paid") -> list[Any]:
    return [record.value for record in driver.read(topic)]


def crash(driver: TopologyTestDriver, point: str, hit: int = 1) -> None:
    """Send one record, and crash when a point is reached."""
    hits = 0
    armed = driver._at

    def at(reached: str) -> None:
        nonlocal hits
        hits += reached == point
        if reached == point and hits == hit:
            driver._crash_at = driver._hits + 1
        armed(reached)

    driver._at = at  # type: ignore[method-assign]  # pyright: ignore[reportAttributeAccessIssue]
    driver.send("orders", {"n": 1}, key="anna")
    driver.run()
    assert driver.crashed


KEY = "shop/paid/0/orders/0/paid.charge"


@pytest.mark.parametrize("later", [False, True])
def test_a_crash_at_any_step_repeats_no_effect(later: bool) -> None:
    service = Service()

    def scenario(driver: TopologyTestDriver) -> None:
        service.made.clear()
        send(driver, *range(4))
        assert sorted(service.made.values()) == [1] * 4

    call = service.charge_later if later else service.charge
    assert crash_everywhere(charged(call, on_doubt="retry"), scenario) > 15


def test_a_crash_at_any_step_repeats_no_effect_of_a_service_that_is_looked_up() -> None:
    service = Service(honours=False)

    def scenario(driver: TopologyTestDriver) -> None:
        service.made.clear()
        send(driver, *range(4))
        assert sorted(service.made.values()) == [1] * 4

    app = charged(service.charge, on_doubt="look_up", look_up=service.look_up)
    crash_everywhere(app, scenario)


def test_the_key_is_made_of_application_task_offset_and_step() -> None:
    service = Service()
    driver = TopologyTestDriver(
        charged(service.charge, on_doubt="retry", key=lambda value: f"order {value['n']}")
    )
    send(driver, 7)
    assert service.attempts == [(f"{KEY}/order 7", 1)]


def test_calls_of_one_record_have_numbers() -> None:
    service = Service()
    app = Topology("shop")
    twice = app.stream("orders", key=str, value="json").flat_map_values(lambda value: [value] * 2)
    twice.call_once(service.charge, name="charge", on_doubt="retry").named("paid").to("paid")
    driver = TopologyTestDriver(app)
    send(driver, 1)
    first, second = sorted(service.made)
    assert (first, second) == (first, f"{first}#2")


@pytest.mark.parametrize(
    ("point", "attempts"),
    [("effects.before_call", [(KEY, 2)]), ("effects.after_call", [(KEY, 1), (KEY, 2)])],
)
def test_a_doubt_is_retried_with_the_next_attempt(
    point: str, attempts: list[tuple[str, int]]
) -> None:
    service = Service()
    driver = TopologyTestDriver(charged(service.charge, on_doubt="retry"))
    crash(driver, point)
    assert service.attempts == attempts
    assert values(driver) == [{"paid": 1}]


def test_a_doubt_is_looked_up_under_a_number_of_its_own() -> None:
    service = Service(honours=False)
    app = charged(service.charge, on_doubt="look_up", look_up=service.look_up)
    driver = TopologyTestDriver(app)
    crash(driver, "effects.after_call")
    assert service.attempts == [(KEY, 1)]
    assert service.looked_up == [(KEY, 2)]
    assert values(driver) == [{"paid": 1}]


def test_a_doubt_becomes_a_dead_letter() -> None:
    service = Service(honours=False)
    driver = TopologyTestDriver(charged(service.charge, dead=True, on_doubt="dead_letter"))
    crash(driver, "effects.after_call")
    send(driver, 2)
    assert service.made == {KEY: 1, KEY.replace("/0/paid", "/1/paid"): 1}
    assert values(driver) == [{"paid": 2}]
    [letter] = driver.read("dead")
    said = dict(letter.headers)
    assert b"EffectInDoubt" in (said["__streams.errors.exception"] or b"")
    assert KEY.encode() in (said["__streams.errors.message"] or b"")


@pytest.mark.parametrize("point", ["transaction.before_commit", "transaction.after_produce"])
def test_a_replay_uses_the_result_and_calls_nothing(point: str) -> None:
    service = Service(honours=False)
    driver = TopologyTestDriver(charged(service.charge, dead=True, on_doubt="dead_letter"))
    crash(driver, point, hit=1 if point.endswith("produce") else 3)
    assert service.attempts == [(KEY, 1)]
    assert values(driver) == [{"paid": 1}]


def test_an_error_is_retried_after_a_pause_and_looked_up() -> None:
    service = Service(honours=False)
    service.fails = 1
    app = charged(service.charge, on_doubt="look_up", look_up=service.look_up, retry="1s")
    driver = TopologyTestDriver(app)
    send(driver, 1)
    assert service.attempts == [(KEY, 1)]
    assert service.looked_up == [(KEY, 2)]
    assert values(driver) == [{"paid": 1}]


def test_a_look_up_that_fails_fails_the_record_and_calls_nothing() -> None:
    service = Service(honours=False)
    service.fails = 1

    def look_up(value: Value, effect: Effect) -> None:
        raise ConnectionRefusedError("away")

    app = charged(service.charge, on_doubt="look_up", look_up=look_up, retry="1s")
    driver = TopologyTestDriver(app)
    with pytest.raises(RecordFailed, match="could not tell: ConnectionRefusedError: away"):
        send(driver, 1)
    assert service.attempts == [(KEY, 1)]


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ({1, 2}, "TypeError"),
        (float("nan"), "ValueError"),
        ("x" * RESULT_BYTES, f"it has {RESULT_BYTES + 2:,} bytes as JSON"),
    ],
)
def test_a_result_that_cannot_be_kept_fails_its_record_each_time(result: Any, wanted: str) -> None:
    calls: list[int] = []

    def charge(value: Value, effect: Effect) -> Any:
        calls.append(effect.attempt)
        return result

    app = charged(charge, on_doubt="retry")
    driver = TopologyTestDriver(app)
    for _ in range(2):
        with pytest.raises(RecordFailed, match=wanted) as failed:
            send(driver, *([] if calls else [1]))
        assert isinstance(failed.value.__cause__, EffectUnusable)
        driver.restart()
    assert calls == [1]


def test_results_are_the_same_the_first_time_and_in_a_replay() -> None:
    def charge(value: Value, effect: Effect) -> Any:
        return {"pair": [value["n"], None]}

    driver = TopologyTestDriver(charged(charge, on_doubt="retry"))
    send(driver, 1)
    assert values(driver) == [{"pair": [1, None]}]


def test_entries_expire_once_their_input_is_committed_and_their_time_has_passed() -> None:
    service = Service()
    driver = TopologyTestDriver(charged(service.charge, on_doubt="retry", keep="1m"))
    [partition] = driver.kafka.partitions_of("shop-paid-effects")
    send(driver, 1, 2)
    first = driver.kafka.positions[partition].offset
    driver.advance("2m")
    send(driver, 3)
    later = driver.kafka.positions[partition].offset
    assert (first or 0) < (later or 0)
    kept = driver.kafka.logs[partition].read(later or 0, 100)
    assert {read_entry(m)[1].offset for m in kept} == {2}
    assert {read_entry(m)[1].state for m in kept} == {EntryState.INTENT, EntryState.DONE}


def test_a_key_function_without_a_text_fails_the_record() -> None:
    service = Service()
    app = charged(service.charge, on_doubt="retry", key=lambda value: value["n"])
    with pytest.raises(RecordFailed, match="returned int; expected a text"):
        send(TopologyTestDriver(app), 1)
    assert not service.made


def test_what_runs_without_a_journal_refuses_the_step() -> None:
    service = Service()
    driver = TopologyDriver(resolve(charged(service.charge, on_doubt="retry").loaded()))
    with pytest.raises(ConfigurationError, match=r"paid\.steps\[0\] call_once.* would take effect"):
        driver.send("orders", {"n": 1}, key="anna")
    assert not service.made


def test_each_point_of_the_journal_is_one_of_the_protocol() -> None:
    points = {point for point in failpoints.POINTS if point.startswith("effects.")}
    assert len(points) == 4
