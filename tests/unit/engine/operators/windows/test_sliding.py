"""Sliding windows against plain lists of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import sliding
from eosframework.errors import TopologyError
from tests.unit.engine.operators.windows.bench import Bench
from tests.unit.engine.operators.windows.functions import append, empty
from tests.unit.engine.operators.windows.histories import histories, play

NUMBERS = st.sampled_from([(5, 0), (5, 4), (9, 20), (1, 0), (20, 3)])


def by_sliding(size: int, grace: int = 0, **options: Any) -> Bench:
    window = sliding(f"{size}ms")
    return Bench(
        lambda keyed: keyed.window(window, grace=f"{grace}ms", late="late").aggregate(
            empty, append, **options
        ),
        value="json",
    )


class Model:
    """Every record that was not late; windows are looked for among them."""

    def __init__(self, size: int, grace: int) -> None:
        self.size, self.grace = size, grace
        self.now = 0
        self.records: list[tuple[str, Any, int]] = []
        self.shown: dict[tuple[str, int], Any] = {}
        self.updates: list[Any] = []
        self.closed: list[Any] = []
        self.late: list[Any] = []

    def add(self, key: str, value: Any, time: int) -> None:
        self.now = max(self.now, time)
        self._take_closed()
        if time + 1 + self.size + self.grace <= self.now:
            self.late.append(value)
            return
        before = dict(self._windows(key))
        self.records.append((key, value, time))
        for start, result in sorted(self._windows(key)):
            is_open = start + self.size + self.grace >= self.now
            if is_open and before.get(start) != result:
                self.updates.append((key, (start, start + self.size, result[0]), result[1]))
                self.shown[key, start] = result

    def _windows(self, key: str) -> Iterator[tuple[int, Any]]:
        mine = [(value, time) for name, value, time in self.records if name == key]
        starts = {s for _, time in mine for s in (time - self.size, time + 1)}
        for start in starts:
            inside = [(v, time) for v, time in mine if start <= time <= start + self.size]
            if inside:
                yield start, ([v for v, _ in inside], max(time for _, time in inside))

    def _take_closed(self) -> None:
        for key, start in sorted(self.shown):
            if start + self.size + self.grace < self.now:
                values, time = self.shown.pop((key, start))
                self.closed.append((key, (start, start + self.size, values), time))


def model_of(records: Any, size: int, grace: int) -> Model:
    model = Model(size, grace)
    for key, value, time in records:
        model.add(key, value, time)
    return model


@settings(deadline=None, max_examples=120)
@given(NUMBERS, histories())
def test_each_update_is_that_of_the_model(numbers: Any, history: Any) -> None:
    bench = by_sliding(*numbers)
    model = model_of(play(bench, history), *numbers)
    assert bench.results() == model.updates
    assert [o[1] for o in bench.written("late")] == [str(value).encode() for value in model.late]


@settings(deadline=None, max_examples=120)
@given(NUMBERS, histories())
def test_a_window_goes_on_once_when_it_closes(numbers: Any, history: Any) -> None:
    bench = by_sliding(*numbers, emit="close")
    model = model_of(play(bench, history), *numbers)
    assert sorted(bench.results(), key=str) == sorted(model.closed, key=str)


@settings(deadline=None, max_examples=50)
@given(NUMBERS, histories())
def test_nothing_is_left_of_windows_that_ended(numbers: Any, history: Any) -> None:
    bench = by_sliding(*numbers)
    play(bench, history)
    bench.feed(("z", "end", 10_000))
    bench.feed(("z", "end", 20_000))
    assert bench.entries() == 2


def test_the_windows_are_those_of_the_proposal() -> None:
    """The example of KIP-450: a record at 8000, at 9200 and at 12400, ten seconds apart at most."""
    bench = by_sliding(10_000)
    assert bench.feed(("a", 1, 18_000), ("a", 2, 19_200), ("a", 3, 22_400)) == [
        ("a", (8_000, 18_000, [1]), 18_000),
        ("a", (9_200, 19_200, [1, 2]), 19_200),
        ("a", (18_001, 28_001, [2]), 19_200),
        ("a", (12_400, 22_400, [1, 2, 3]), 22_400),
        ("a", (18_001, 28_001, [2, 3]), 22_400),
        ("a", (19_201, 29_201, [3]), 22_400),
    ]


def test_a_window_that_closed_tells_where_the_next_one_begins_for_as_long_as_needed() -> None:
    bench = by_sliding(5, 4)
    bench.feed(("a", 1, 10), ("b", 2, 20))
    assert bench.feed(("a", 3, 12)) == [("a", (11, 16, [3]), 12)]


def test_sliding_windows_have_no_last_value_of_a_transaction() -> None:
    with pytest.raises(TopologyError, match="sliding windows have emit: each or close"):
        by_sliding(5, emit="commit")
