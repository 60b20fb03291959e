"""Tumbling and hopping windows against plain lists of records."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import hopping, tumbling
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.errors import RunError
from tests.unit.engine.operators.windows.bench import Bench, failed
from tests.unit.engine.operators.windows.functions import (
    append,
    append_even,
    empty,
    refuse_windows_of_13,
)
from tests.unit.engine.operators.windows.histories import Record, histories, play


def by_windows(window: Any, grace: str = "0ms", **options: Any) -> Bench:
    return Bench(
        lambda keyed: keyed.window(window, grace=grace, late="late").aggregate(
            empty, append, **options
        ),
        value="json",
    )


class Model:
    """Windows of `size` every `every`, kept as lists of values."""

    def __init__(self, size: int, every: int, grace: int) -> None:
        self.size, self.every, self.grace = size, every, grace
        self.now = 0
        self.windows: dict[tuple[int, str], list[Any]] = defaultdict(list)
        self.times: dict[tuple[int, str], int] = {}
        self.updates: list[Any] = []
        self.closed: list[Any] = []
        self.late: list[Any] = []

    def add(self, key: str, value: Any, time: int) -> None:
        self.now = max(self.now, time)
        starts = [s for s in range(0, time + 1, self.every) if s <= time < s + self.size]
        open_ = [s for s in starts if s + self.size + self.grace > self.now]
        for start in open_:
            self.windows[start, key].append(value)
            self.times[start, key] = max(time, self.times.get((start, key), 0))
            self.updates.append(self._result(start, key))
        if not open_:
            self.late.append(value)
        for start, name in sorted(self.windows):
            if start + self.size + self.grace <= self.now:
                self.closed.append(self._result(start, name))
                del self.windows[start, name], self.times[start, name]

    def _result(self, start: int, key: str) -> Any:
        values = [*self.windows[start, key]]
        return key, (start, start + self.size, values), self.times[start, key]


def model_of(records: list[Record], size: int, every: int, grace: int) -> Model:
    model = Model(size, every, grace)
    for key, value, time in records:
        model.add(key, value, time)
    return model


SIZES = st.sampled_from([(10, 10, 0), (10, 10, 7), (12, 5, 0), (12, 4, 3), (9, 2, 30)])


def window_of(size: int, every: int) -> Any:
    return tumbling(f"{size}ms") if size == every else hopping(f"{size}ms", every=f"{every}ms")


@settings(deadline=None, max_examples=120)
@given(SIZES, histories())
def test_each_update_is_that_of_the_model(sizes: Any, history: Any) -> None:
    size, every, grace = sizes
    bench = by_windows(window_of(size, every), f"{grace}ms")
    model = model_of(play(bench, history), size, every, grace)
    assert bench.results() == model.updates
    assert [output[1] for output in bench.written("late")] == [
        str(value).encode() for value in model.late
    ]
    assert bench.entries() == len(model.windows)


@settings(deadline=None, max_examples=120)
@given(SIZES, histories())
def test_a_window_goes_on_once_when_it_closes(sizes: Any, history: Any) -> None:
    size, every, grace = sizes
    bench = by_windows(window_of(size, every), f"{grace}ms", emit="close")
    model = model_of(play(bench, history), size, every, grace)
    assert bench.results() == model.closed
    assert bench.entries() == len(model.windows)


@settings(deadline=None, max_examples=100)
@given(SIZES, histories())
def test_at_a_commit_each_changed_window_goes_on_with_its_last_value(
    sizes: Any, history: Any
) -> None:
    size, every, grace = sizes
    bench = by_windows(window_of(size, every), f"{grace}ms", emit="commit")
    model = model_of(play(bench, history), size, every, grace)
    last = {(key, window[0]): (window, at) for key, window, at in model.updates}
    shown = {(key, window[0]): (window, at) for key, window, at in bench.results()}
    assert shown == last
    assert all(result in model.updates for result in bench.results())


def test_a_window_closes_at_its_end_and_grace_and_not_before() -> None:
    bench = by_windows(tumbling("10ms"), "5ms", emit="close")
    assert bench.feed(("a", 1, 3), ("b", 2, 14)) == []
    assert bench.feed(("b", 3, 15)) == [("a", (0, 10, [1]), 3)]


def test_a_result_that_fails_leaves_its_window_open() -> None:
    bench = Bench(
        lambda keyed: (
            keyed.window(tumbling("10ms"))
            .aggregate(empty, append, emit="close")
            .map_values(refuse_windows_of_13)
        ),
        value="json",
    )
    bench.send(("a", 1, 1), ("b", 13, 1), ("c", 2, 2), ("a", 3, 10), ("a", 4, 11))
    error = failed(bench)
    assert "unlucky" in str(error)
    assert bench.position.offset == 4
    assert bench.results() == [("a", (0, 10, [1]), 1)]
    bench.crash()
    assert "unlucky" in str(failed(bench))
    assert bench.results() == [("a", (0, 10, [1]), 1)]


def test_a_result_that_is_skipped_closes_its_window() -> None:
    bench = Bench(
        lambda keyed: (
            keyed.window(tumbling("10ms"))
            .aggregate(empty, append, emit="close")
            .map_values(refuse_windows_of_13)
            .on_error("skip")
        ),
        value="json",
    )
    assert bench.feed(("a", 1, 1), ("b", 13, 1), ("c", 2, 2), ("a", 3, 10)) == [
        ("a", (0, 10, [1]), 1),
        ("c", (0, 10, [2]), 2),
    ]
    assert bench.task.failures.skipped == 1
    assert bench.entries() == 1


def test_a_window_that_closed_before_a_record_failed_does_not_go_on_again() -> None:
    bench = Bench(
        lambda keyed: keyed.window(tumbling("10ms")).aggregate(empty, append_even, emit="close"),
        value="json",
    )
    bench.send(("a", 2, 0), ("a", 4, 15), ("a", 5, 16))
    assert "odd" in str(failed(bench))
    assert bench.position.offset == 2
    bench.crash()
    bench.sent[2:] = []
    assert bench.feed(("a", 6, 5), ("a", 8, 20)) == [("a", (10, 20, [4]), 15)]
    assert bench.task.late_records.count == 1


def test_a_record_that_fails_changes_no_window() -> None:
    bench = Bench(
        lambda keyed: (
            keyed.window(hopping("10ms", every="5ms"))
            .aggregate(empty, append)
            .map_values(refuse_windows_of_13)
            .on_error("skip")
        ),
        value="json",
    )
    bench.feed(("a", 13, 7))
    assert bench.entries() == 0
    assert bench.feed(("a", 1, 8)) == [("a", (0, 10, [1]), 8), ("a", (5, 15, [1]), 8)]


def test_a_late_record_is_counted_and_goes_on_as_it_came() -> None:
    bench = by_windows(tumbling("10ms"))
    bench.feed(("a", 1, 25), ("a", 2, 19))
    (late,) = bench.written("late")
    assert late[1:3] == (b"2", b"a")
    assert late[6] == 19
    assert (
        dict(late[7])["__streams.errors.exception"]
        == b"LateRecord: stream time is 25 (1970-01-01T00:00:00.025+00:00), 6 ms ahead"
    )
    assert bench.task.late_records.count == 1


def test_without_a_key_or_a_value_there_is_no_window() -> None:
    bench = by_windows(tumbling("10ms"))
    assert bench.feed((None, 1, 0), ("a", None, 1)) == []
    assert bench.task.late_records.count == 0


def test_a_store_of_other_windows_is_refused() -> None:
    bench = by_windows(tumbling("10ms"))
    bench.feed(("a", 1, 25))
    other = by_windows(tumbling("20ms"))
    other.kept = bench.kept
    with pytest.raises(RunError, match=r"windows of 10ms.*declares tumbling.* 20ms.*store:"):
        other.start()


def test_what_closes_is_receipted_as_coming_from_the_record_that_closes_it() -> None:
    bench = Bench(
        lambda keyed: keyed.window(tumbling("10ms")).aggregate(empty, append, emit="close"),
        value="json",
        receipts=True,
    )
    bench.feed(("a", 1, 0), ("b", 2, 1), ("a", 3, 10), ("a", 4, 25))
    receipts = [Receipt.parse(dict(o[7])[HEADER_RECEIPT]) for o in bench.written("out")]
    assert [(r.offset, r.index, r.count, r.number) for r in receipts if r] == [
        (2, 0, 2, 0),
        (2, 1, 2, 1),
        (3, 0, 1, 2),
    ]
