"""Sessions against plain lists of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import session
from eosframework.errors import TopologyError
from tests.unit.engine.operators.windows.bench import Bench
from tests.unit.engine.operators.windows.functions import append, empty, itself, joined
from tests.unit.engine.operators.windows.histories import histories, play

NUMBERS = st.sampled_from([(5, 0), (5, 4), (9, 20), (1, 0)])


def by_sessions(gap: int, grace: int = 0, **options: Any) -> Bench:
    window = session(f"{gap}ms")
    return Bench(
        lambda keyed: keyed.window(window, grace=f"{grace}ms", late="late").aggregate(
            empty, append, merge=joined, **options
        ),
        value="json",
    )


@dataclass(eq=False)
class Session:
    key: str
    start: int
    end: int
    values: list[Any]

    def shown(self, values: Any) -> Any:
        return self.key, (self.start, self.end, values), self.end


class Model:
    """Open sessions, each a list of values."""

    def __init__(self, gap: int, grace: int) -> None:
        self.gap, self.grace = gap, grace
        self.now = 0
        self.open: list[Session] = []
        self.updates: list[Any] = []
        self.closed: list[Any] = []
        self.late: list[Any] = []

    def add(self, key: str, value: Any, time: int) -> None:
        self.now = max(self.now, time)
        self._take_closed()
        near = [
            s
            for s in sorted(self.open, key=lambda s: s.start)
            if s.key == key and s.end >= time - self.gap and s.start <= time + self.gap
        ]
        if not near and time + self.gap + self.grace < self.now:
            self.late.append(value)
            return
        start = min([time, *(s.start for s in near)])
        end = max([time, *(s.end for s in near)])
        values = [v for s in near for v in s.values]
        grown = Session(key, start, end, [*values, value])
        self.updates += [s.shown(None) for s in near if (s.start, s.end) != (start, end)]
        self.updates.append(grown.shown(grown.values))
        self.open = [s for s in self.open if s not in near] + [grown]

    def _take_closed(self) -> None:
        due = [s for s in self.open if s.end + self.gap + self.grace < self.now]
        for one in sorted(due, key=lambda s: (s.end, s.key)):
            self.closed.append(one.shown(one.values))
            self.open.remove(one)


def model_of(records: Any, gap: int, grace: int) -> Model:
    model = Model(gap, grace)
    for key, value, time in records:
        model.add(key, value, time)
    return model


@settings(deadline=None, max_examples=120)
@given(NUMBERS, histories())
def test_each_update_is_that_of_the_model(numbers: Any, history: Any) -> None:
    bench = by_sessions(*numbers)
    model = model_of(play(bench, history), *numbers)
    assert bench.results() == model.updates
    assert [o[1] for o in bench.written("late")] == [str(value).encode() for value in model.late]


@settings(deadline=None, max_examples=120)
@given(NUMBERS, histories())
def test_a_session_goes_on_once_when_it_closes(numbers: Any, history: Any) -> None:
    bench = by_sessions(*numbers, emit="close")
    model = model_of(play(bench, history), *numbers)
    assert sorted(bench.results(), key=str) == sorted(model.closed, key=str)


@settings(deadline=None, max_examples=100)
@given(NUMBERS, histories())
def test_what_goes_on_at_commits_ends_with_the_same_sessions(numbers: Any, history: Any) -> None:
    bench = by_sessions(*numbers, emit="commit")
    model = model_of(play(bench, history), *numbers)
    assert last_of(bench.results()) == last_of(model.updates)


def last_of(updates: list[Any]) -> dict[Any, Any]:
    """Return the last value of each session; without those that were replaced."""
    found = {(key, start, end): value for key, (start, end, value), _ in updates}
    return {window: value for window, value in found.items() if value is not None}


@settings(deadline=None, max_examples=50)
@given(NUMBERS, histories())
def test_nothing_is_left_of_sessions_that_closed(numbers: Any, history: Any) -> None:
    bench = by_sessions(*numbers)
    play(bench, history)
    bench.feed(("z", "end", 10_000))
    bench.feed(("z", "end", 20_000))
    assert bench.entries() == 2


def test_a_record_between_two_sessions_makes_them_one() -> None:
    bench = by_sessions(5, 100)
    assert bench.feed(("a", 1, 10), ("a", 2, 20), ("a", 3, 15)) == [
        ("a", (10, 10, [1]), 10),
        ("a", (20, 20, [2]), 20),
        ("a", (10, 10, None), 10),
        ("a", (20, 20, None), 20),
        ("a", (10, 20, [1, 2, 3]), 20),
    ]


@pytest.mark.parametrize(
    ("operator", "expected"), [("count", 3), ("sum", 7), ("max", 4), ("min", 1)]
)
def test_folds_of_two_sessions_are_put_together(operator: str, expected: int) -> None:
    of = [] if operator == "count" else [itself]
    bench = Bench(
        lambda keyed: getattr(keyed.window(session("5ms"), grace="1s"), operator)(*of),
        value="json",
    )
    updates = bench.feed(("a", 1, 10), ("a", 2, 20), ("a", 4, 15))
    assert updates[-1] == ("a", (10, 20, expected), 20)


def test_an_aggregate_without_merge_is_refused() -> None:
    with pytest.raises(TopologyError, match="needs merge"):
        Bench(lambda keyed: keyed.window(session("5ms")).aggregate(empty, append))
