"""What one record closes may take several transactions: their bounds change no result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from eosframework import Topology, hopping, session, sliding, tumbling
from eosframework.engine.task import task_windows
from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.topology.dsl.streams import KeyedStream, Stream

END = 10**6

Event = tuple[str, str, int]
"""Topic, key and time of a record."""

UNBOUNDED = 10**9

Declare = Callable[[KeyedStream, Stream], Stream]


def windows(left: KeyedStream, right: Stream) -> Stream:
    """Return counts of several kinds of windows, and timers behind one of them."""
    each = left.window(hopping("40ms", every="20ms")).count(store="each")
    rare = left.window(session("15ms")).count(emit="close", store="sessions")
    near = left.window(sliding("15ms")).count(emit="close", store="near")
    whole = left.window(tumbling("20ms")).count(emit="close", store="whole")
    return each.merge(rare, near, whole)


def remind(record: Any, context: Any) -> Any:
    """Set timers for later, and for a time that has passed."""
    context.set_timer(record.timestamp + 30)
    context.set_timer(record.timestamp + 50, "other")
    context.set_timer(record.timestamp - 5, "early")
    return [(record.key, {"seen": record.timestamp})]


def fire(key: str, at: int, context: Any) -> Any:
    """Report a timer; some set the next one."""
    if at % 3 == 0:
        context.set_timer(at + 10, key)
    return [(key, {"fired": at})]


def timers(left: KeyedStream, right: Stream) -> Stream:
    """Return timers in front of windows that make further timers due, and behind others."""
    options: dict[str, Any] = {"on_timer": fire}
    seen = right.filter(lambda _: True)  # Declared first, so that its timers are the first node.
    hours = right.group_by_key().window(tumbling("30ms")).count(emit="close", store="hours")
    first = seen.merge(hours).process(remind, name="first", **options)
    whole = left.window(tumbling("20ms")).count(emit="close", store="whole")
    return first.merge(whole.process(remind, name="last", **options))


def pair(left: Any, right: Any) -> Any:
    """Join two values."""
    return [left, right]


def joins(left: KeyedStream, right: Stream) -> Stream:
    """Return an outer join of both streams, without duplicates."""
    joined = left.join_within(right, pair, "10ms", how="outer", store="pairs")
    return joined.group_by_key().deduplicate("30ms", store="once", order="arrival")


def key_of(record: Any) -> str:
    """Return the key of a record."""
    return record.key


def reordered(left: KeyedStream, right: Stream) -> Stream:
    """Return sessions and windows behind a repartition topic, in order."""
    keyed = right.group_by(key_of, key=str, name="again")
    rare = keyed.window(session("15ms")).count(emit="close", store="sessions")
    first = keyed.reduce(pair, order="time", store="first")
    return rare.merge(keyed.window(tumbling("20ms")).count(emit="close", store="whole"), first)


def topology(declare: Declare) -> Topology:
    app = Topology("bounds")
    left, right = (app.stream(name, key=str, value="json") for name in ("left", "right"))
    left.to("left.copy")
    right.to("right.copy")
    declare(left.group_by_key(), right).to("out", value="json")
    return app


ALL = [windows, timers, joins, reordered]


def outcome(
    monkeypatch: pytest.MonkeyPatch, app: Topology, events: Sequence[Event], bound: int
) -> tuple[list[Any], dict[str, Any]]:
    """Return the outputs in order, and the stores, with so many results in a transaction."""
    with monkeypatch.context() as bounded:
        bounded.setattr(task_windows, "MOST_STEPS", bound)
        driver = TopologyTestDriver(app)
        send(driver, events)
    stores = {store.name for store in driver.graph.stores}
    found = [record._replace(offset=0) for record in driver.read("out")]  # Markers take offsets.
    return found, {name: driver.state(name) for name in stores}


def send(driver: TopologyTestDriver, events: Sequence[Event]) -> None:
    """Run records; the last ones make everything due, some of it twice."""
    for number, (topic, key, time) in enumerate(events):
        driver.send(topic, number, key=key, timestamp=time)
    for topic in ("left", "right"):
        driver.send(topic, -1, key="z", timestamp=END)
    driver.run()


def drawn(seed: int) -> list[Event]:
    """Return random records, some of them out of order, with leaps of time."""
    draw, at, found = Random(seed), 20, list[Event]()
    for _ in range(draw.randrange(30)):
        at += draw.choice([0, 0, 1, 2, 5, 60])
        time = at - draw.choice([0, 0, 0, 3, 10])
        found.append((draw.choice(["left", "right"]), draw.choice("abc"), time))
    return found


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 300), marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("declare", ALL)
def test_bounds_change_no_result_and_no_order(
    monkeypatch: pytest.MonkeyPatch, declare: Declare, seeds: range
) -> None:
    app = topology(declare)
    for seed in seeds:
        events = drawn(seed)
        expected = outcome(monkeypatch, app, events, UNBOUNDED)
        for bound in (1, 2, 7):
            assert outcome(monkeypatch, app, events, bound) == expected, (seed, bound)


@pytest.mark.parametrize("declare", ALL)
def test_a_crash_between_two_parts_of_what_is_due_loses_and_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch, declare: Declare
) -> None:
    monkeypatch.setattr(task_windows, "MOST_STEPS", 2)
    events = [("left", "a", 100), ("right", "a", 105), ("left", "b", 150), ("right", "c", 190)]
    assert crash_everywhere(topology(declare), lambda driver: send(driver, events)) > 10
