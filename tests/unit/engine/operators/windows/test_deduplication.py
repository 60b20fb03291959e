"""Deduplication against a plain list of the records passed on."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine.operators.windows.bench import Bench
from tests.unit.engine.operators.windows.functions import itself
from tests.unit.engine.operators.windows.histories import histories, play


def third(value: Any) -> Any:
    return {"id": value % 3}


def nothing(value: Any) -> Any:
    return None


def model_of(records: Any, within: int, by: Any) -> tuple[list[Any], list[Any]]:
    now, passed, late = 0, list[Any](), list[Any]()
    for key, value, time in records:
        now = max(now, time)
        if time + within <= now:
            late.append(value)
        elif not any(
            (k, by(v)) == (key, by(value)) and abs(t - time) < within for k, v, t in passed
        ):
            passed.append((key, value, time))
    return passed, late


@settings(deadline=None, max_examples=120)
@given(st.sampled_from([1, 5, 12, 40]), st.booleans(), histories())
def test_the_first_record_within_the_time_goes_on(within: int, has_by: bool, history: Any) -> None:
    bench = Bench(
        lambda keyed: keyed.deduplicate(f"{within}ms", by=third if has_by else None, late="late"),
        value="json",
    )
    passed, late = model_of(play(bench, history), within, third if has_by else nothing)
    assert bench.results() == passed
    assert [o[1] for o in bench.written("late")] == [str(value).encode() for value in late]


def test_nothing_is_remembered_for_ever() -> None:
    bench = Bench(lambda keyed: keyed.deduplicate("10ms", by=itself), value="json")
    bench.feed(*(("a", n, n) for n in range(100)))
    assert bench.entries() <= 30
    bench.feed(("a", 100, 1000))
    assert bench.entries() == 1


def test_what_differs_in_key_or_value_is_no_repetition() -> None:
    bench = Bench(lambda keyed: keyed.deduplicate("1s", by=itself), value="json")
    sent = [("a", "bc", 1), ("ab", "c", 2), ("a", ["b"], 3), ("a", '["b"]', 4)]
    assert bench.feed(*sent) == sent
    assert bench.feed(*sent) == []


def test_a_record_is_remembered_for_as_long_as_one_that_is_not_late_can_repeat_it() -> None:
    bench = Bench(lambda keyed: keyed.deduplicate("10ms"), value="json")
    bench.feed(("a", 1, 9), ("b", 2, 20))
    assert bench.feed(("a", 3, 11)) == []
    bench.feed(("b", 4, 29))
    assert bench.feed(("a", 5, 20)) == [("a", 5, 20)]
