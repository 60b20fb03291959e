"""What is read of a store by key is what its operator gave, whatever lies in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import hopping, session, sliding, tumbling
from eosframework.engine.operators.entries import EntryFormat
from eosframework.engine.operators.history import Chunks, VersionedRows
from eosframework.engine.operators.store_transaction import (
    Limits,
    StoreTransaction,
    open_transaction,
)
from eosframework.engine.operators.stream_joins import Interval, StreamJoinOperator
from eosframework.engine.operators.windows import Alarm
from eosframework.records import WindowResult, moment
from eosframework.serialization.serdes import BYTES, JSON, STRING
from eosframework.state.layout import Layout, Row
from eosframework.state.memory import MemoryStore
from eosframework.state.query import HistoryLayout, WaitingLayout, layout_of
from eosframework.topology.graph.graph import Function, JoinKind, OnError, Store, StreamJoin
from tests.unit.engine.operators.windows.bench import Bench
from tests.unit.engine.operators.windows.functions import append, empty, joined

KEYS = ("a", "ab", "b", "")
RECORDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.integers(0, 3), st.integers(0, 60)), max_size=25
)
RANGES = st.tuples(st.sampled_from(["", "a", "aa", "b"]), st.sampled_from([None, "b", "c"]))
WINDOWS = {
    "tumbling": tumbling("10ms"),
    "days": tumbling("1d", zone="Europe/Berlin"),
    "hopping": hopping("20ms", every="5ms"),
    "sliding": sliding("10ms"),
    "session": session("4ms"),
}
EXAMPLES = settings(deadline=None, max_examples=60)


def layout_and_content(bench: Bench) -> tuple[Layout, MemoryStore]:
    part = bench.compiled.part
    (store,) = part.stores
    return layout_of(part, store), bench.kept.store(store.name)


def require(
    layout: Layout,
    content: MemoryStore,
    expected: Iterable[tuple[str, Any]],
    keys: tuple[str, str | None],
) -> None:
    """Compare what is there for each key, and for a range of keys, with pairs of key and value."""
    expected = list(expected)
    for key in KEYS:
        found = [row.value for row in layout.get(content, key.encode())]
        assert sorted(found, key=repr) == sorted((v for k, v in expected if k == key), key=repr)
    first, last = keys
    scanned = layout.scan(content, first.encode(), None if last is None else last.encode())
    inside = [(k, v) for k, v in expected if k >= first and (last is None or k < last)]
    assert sorted(((r.key, r.value) for r in scanned), key=repr) == sorted(inside, key=repr)


@EXAMPLES
@given(RECORDS, RANGES)
def test_an_aggregate_is_read_by_key(records: Any, keys: tuple[str, str | None]) -> None:
    bench = Bench(lambda keyed: keyed.aggregate(empty, append), value="json")
    last = {key: value for key, value, _ in bench.feed(*records)}
    require(*layout_and_content(bench), last.items(), keys)


@pytest.mark.parametrize("kind", WINDOWS)
@EXAMPLES
@given(records=RECORDS, keys=RANGES)
def test_windows_are_read_by_key_as_they_last_went_on(
    kind: str, records: Any, keys: tuple[str, str | None]
) -> None:
    merge: Any = {"merge": joined} if kind == "session" else {}
    bench = Bench(
        lambda keyed: keyed.window(WINDOWS[kind], grace="1h").aggregate(empty, append, **merge),
        value="json",
    )
    last = {(k, start, end): v for k, (start, end, v), _ in bench.feed(*records)}
    there = [(k, WindowResult(s, e, v)) for (k, s, e), v in last.items() if v is not None]
    require(*layout_and_content(bench), there, keys)


@pytest.mark.parametrize("by", [None, lambda value: {"id": value % 2}])
@EXAMPLES
@given(records=RECORDS, keys=RANGES)
def test_what_deduplication_has_seen_is_read_by_key(
    by: Callable[[Any], Any] | None, records: Any, keys: tuple[str, str | None]
) -> None:
    bench = Bench(lambda keyed: keyed.deduplicate("1h", by=by), value="json")
    passed = bench.feed(*records)
    seen = [(key, None if by is None else by(value)) for key, value, _ in passed]
    require(*layout_and_content(bench), seen, keys)


def over(content: MemoryStore) -> StoreTransaction:
    return open_transaction(EntryFormat("rows", BYTES), content, [])


def commit(store: StoreTransaction, content: MemoryStore) -> None:
    content.apply(store.changes())
    store.committed()


@EXAMPLES
@given(RECORDS, RANGES)
def test_of_rows_with_their_past_the_current_one_is_read(
    records: Any, keys: tuple[str, str | None]
) -> None:
    content, now = MemoryStore(), 0
    store = over(content)
    history = VersionedRows(Chunks(store), JSON, 1000, Alarm())
    current: dict[str, tuple[int, Any]] = {}
    for key, value, time in records:
        row = None if value == 0 else {"v": value}
        now = max(now, time)
        history.change(key.encode(), row, time, now)
        if time >= current.get(key, (0, None))[0]:
            current[key] = (time, row)
    commit(store, content)
    layout = HistoryLayout(Store("rows", "log", STRING, BYTES), JSON, 1000)
    require(layout, content, [(k, v) for k, (_, v) in current.items() if v is not None], keys)


@EXAMPLES
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(KEYS), st.integers(0, 60))), RANGES)
def test_records_that_wait_for_the_other_side_are_read_by_key(
    records: Any, keys: tuple[str, str | None]
) -> None:
    content = MemoryStore()
    store = over(content)
    interval = Interval(5, 5, 3_600_000)
    limits, both = Limits(), (JSON, JSON)
    joining = StreamJoinOperator(store, max, interval, both, (True, True), Alarm(), limits)
    joining.begin()
    for number, (is_left, key, time) in enumerate(records):
        (joining.left if is_left else joining.right)(key.encode(), number, time, 60)
    commit(store, content)
    waiting = [
        (key, {"side": "left" if is_left else "right", "value": number})
        for number, (is_left, key, _) in enumerate(records)
    ]
    join = StreamJoin(
        name="join",
        stream="join",
        kind=JoinKind.OUTER,
        function=Function("max", max),
        store=Store("rows", "log", STRING, BYTES),
        key=STRING,
        values=(JSON, JSON),
        before_ms=5,
        after_ms=5,
        grace_ms=3_600_000,
        on_error=OnError(),
    )
    require(WaitingLayout(join), content, waiting, keys)


def remind(record: Any, context: Any) -> None:
    context.set_timer(record.timestamp + 1_000)


def too_late(key: str, time: int, context: Any) -> None:
    raise AssertionError("no timer is due")


@EXAMPLES
@given(RECORDS, RANGES)
def test_timers_are_read_by_key_and_scanned_in_the_order_in_which_they_fire(
    records: Any, keys: tuple[str, str | None]
) -> None:
    bench = Bench(
        lambda keyed: keyed.process(remind, on_timer=too_late, name="reminders"), value="json"
    )
    bench.feed(*records)
    layout, content = layout_and_content(bench)
    times = {(key, time + 1_000) for key, _, time in records}
    require(layout, content, [(key, {"fires_at": moment(at)}) for key, at in times], keys)
    scanned = [row.timestamp for row in layout.scan(content, b"", None)]
    assert scanned == sorted(at for _, at in times)


def test_a_row_has_the_time_of_what_it_was_made_of() -> None:
    bench = Bench(lambda keyed: keyed.count(), value="json")
    bench.send(("a", 1, 7), ("a", 2, 5))
    bench.run()
    bench.commit()
    layout, content = layout_and_content(bench)
    assert list(layout.get(content, b"a")) == [Row("a", 2, 7)]
