"""The stores and timers of `process` functions follow the transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.operators.entries import EntryFormat
from eosframework.engine.operators.handlers import Context, Handler, Timers
from eosframework.engine.operators.store_transaction import Journal, open_transaction, undo
from eosframework.engine.operators.windows import NEVER, Alarm
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.errors import ConfigurationError
from eosframework.records import Record
from eosframework.serialization.serdes import JSON, STRING
from eosframework.state import MemoryState


class Bench:
    """A handler with a store of maps and timers, over a store in memory."""

    def __init__(self, function: Any, on_timer: Any = None) -> None:
        names = [StoreIdentity(name, name, 1) for name in ("seen", "timers")]
        self.kept = MemoryState().open("part-0", 1, names)
        self.journal: Journal = []
        self.seen = open_transaction(
            EntryFormat("seen", JSON), self.kept.store("seen"), self.journal
        )
        self.notes = open_transaction(
            EntryFormat("timers", JSON), self.kept.store("timers"), self.journal
        )
        self.alarm = Alarm()
        self.timers = Timers(self.notes, self.alarm)
        self.timers.begin()
        stores = {"seen": (self.seen, STRING)}
        self.handler = Handler(function, on_timer, stores, self.timers, STRING)

    def record(self, key: str, value: Any, at: int = 0) -> Any:
        self.journal.clear()
        return self.handler.record(Record(key, value, at), at)

    def fire(self, now: int) -> list[Any]:
        fired = (found for found in self.timers.closing(now) if found is not None)
        return [self.handler.timer(key.decode(), at, now) for key, at in fired]


def remember(record: Record, context: Context) -> Any:
    seen = context.store("seen")
    before = seen.get(record.key, {"n": 0})
    before["n"] += record.value
    seen.put(record.key, before)
    return [(record.key, before["n"])]


def test_a_store_keeps_what_was_put_and_hands_out_copies() -> None:
    bench = Bench(remember)
    assert bench.record("a", 2) == [("a", 2)]
    assert bench.record("a", 3) == [("a", 5)]
    assert bench.seen.get(b"a") == ({"n": 5}, 0)
    bench.journal.clear()
    bench.record("a", 1)
    undo(bench.journal, 0)
    assert bench.seen.get(b"a") == ({"n": 5}, 0)


def test_items_come_in_the_order_of_their_keys_within_the_bounds() -> None:
    found: list[Any] = []

    def look(record: Record, context: Context) -> None:
        store = context.store("seen")
        for key in ("b", "a", "c"):
            store.put(key, {"k": key})
        store.put("c", None)
        found.append([key for key, _ in store.items()])
        found.append([key for key, _ in store.items("b")])
        found.append([key for key, _ in store.items("a", "b", reverse=True)])

    Bench(look).record("x", 0)
    assert found == [["a", "b"], ["b"], ["a"]]


def test_timers_fire_in_the_order_of_their_times_each_once() -> None:
    def plan(record: Record, context: Context) -> None:
        context.set_timer(record.value)
        context.set_timer(record.value)

    bench = Bench(plan, lambda key, at, context: (key, at, context.stream_time))
    for key, at in (("b", 20), ("a", 20), ("c", 10), ("d", 99)):
        bench.record(key, at)
    assert bench.alarm.due == 10
    assert bench.fire(20) == [("c", 10, 20), ("a", 20, 20), ("b", 20, 20)]
    assert bench.fire(20) == []
    assert bench.timers.due() == 99


def test_a_timer_of_a_failed_record_does_not_fire_and_a_cancelled_one_neither() -> None:
    def plan(record: Record, context: Context) -> None:
        if record.value is None:
            context.cancel_timer(5)
        else:
            context.set_timer(datetime.fromtimestamp(record.value / 1000, UTC))

    bench = Bench(plan, lambda key, at, context: (key, at))
    bench.record("failed", 5)
    undo(bench.journal, 0)
    bench.record("a", 5)
    bench.record("b", 5)
    bench.record("a", None)
    assert bench.fire(100) == [("b", 5)]
    assert bench.timers.due() == NEVER


def test_a_timer_may_set_the_next_one() -> None:
    def again(key: str, at: int, context: Context) -> int:
        if at < 50:
            context.set_timer(at + 10)
        return at

    bench = Bench(lambda record, context: context.set_timer(10), again)
    bench.record("a", 0)
    assert bench.fire(35) == [10, 20, 30]
    assert bench.fire(60) == [40, 50]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.booleans()), max_size=20),
    st.integers(0, 9),
)
def test_timers_outlast_the_worker(steps: list[tuple[str, int, bool]], now: int) -> None:
    def plan(record: Record, context: Context) -> None:
        (context.set_timer if record.value[1] else context.cancel_timer)(record.value[0])

    bench = Bench(plan, lambda key, at, context: (at, key))
    expected: set[tuple[int, str]] = set()
    for key, at, sets in steps:
        bench.record(key, (at, sets))
        (expected.add if sets else expected.discard)((at, key))
    bench.kept.write({"timers": bench.notes.changes()}, {"timers": 1})
    bench.notes.drop()
    bench.timers.begin()
    assert bench.fire(now) == sorted(timer for timer in expected if timer[0] <= now)


def test_a_store_that_is_not_declared_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no store 'sen'; it declares seen"):
        Bench(lambda record, context: context.store("sen")).record("a", 1)
