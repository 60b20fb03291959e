"""Windows of a number of records against plain lists of each key's records."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework import Topology, sliding, tumbling
from eosframework.engine.operators.windows import SpansFormat
from eosframework.errors import RunError
from eosframework.serialization.serdes import JSON
from eosframework.testing import TopologyTestDriver
from tests.unit.engine.operators.windows.bench import Bench, failed
from tests.unit.engine.operators.windows.functions import (
    append,
    append_even,
    empty,
    refuse_windows_of_13,
)
from tests.unit.engine.operators.windows.histories import histories, play

NUMBERS = st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def by_records(records: int, step: int, **options: Any) -> Bench:
    window = tumbling(records=records) if step == records else sliding(records=records, step=step)
    return Bench(
        lambda keyed: keyed.window(window).aggregate(empty, append, **options), value="json"
    )


def model_of(history: Any, records: int, step: int) -> list[Any]:
    """Return the results: after each `step` records of a key, its last `records` values."""
    results: list[Any] = []
    of_key: defaultdict[str, list[Any]] = defaultdict(list)
    for key, value, time in history:
        of_key[key].append((value, time))
        count = len(of_key[key])
        if count % step == 0:
            last = of_key[key][-records:]
            values, times = zip(*last, strict=True)
            results.append((key, (count - len(last), count, list(values)), max(times)))
    return results


@settings(deadline=None, max_examples=60)
@given(NUMBERS, histories())
def test_each_result_is_that_of_the_model(numbers: Any, history: Any) -> None:
    bench = by_records(*numbers)
    records = play(bench, history)
    assert bench.results() == model_of(records, *numbers)
    assert_bounded(bench, {key for key, _, _ in records}, *numbers)


def assert_bounded(bench: Bench, keys: set[str], records: int, step: int) -> None:
    """Check that each key has an entry, with at most as many windows as a record is in."""
    (store,) = bench.compiled.part.stores
    form = SpansFormat(store.name, JSON)
    kept = bench.kept.store(store.name).scan(b"\x01", b"\xff")
    entries = [form.decode(data)[0] for _, data in kept]
    assert len(entries) == len(keys)
    assert all(1 <= len(spans) <= -(-records // step) for spans in entries)


def test_the_first_windows_have_fewer_records_and_the_end_is_not_one_of_them() -> None:
    bench = by_records(5, 2)
    bench.feed(*(("a", value, 100 - value) for value in range(8)))
    assert bench.results() == [
        ("a", (0, 2, [0, 1]), 100),
        ("a", (0, 4, [0, 1, 2, 3]), 100),
        ("a", (1, 6, [1, 2, 3, 4, 5]), 99),
        ("a", (3, 8, [3, 4, 5, 6, 7]), 97),
    ]


def test_records_without_a_key_or_a_value_are_in_no_window() -> None:
    bench = by_records(2, 2)
    sent = [("a", 1, 1), (None, 2, 2), ("a", None, 3), ("b", 4, 4), ("a", 5, 5)]
    assert bench.feed(*sent) == [("a", (0, 2, [1, 5]), 5)]


@pytest.mark.parametrize("step", [2, 1])
def test_a_record_that_fails_in_the_fold_or_after_it_is_in_no_window(step: int) -> None:
    window = sliding(records=2, step=step)

    def kept(add: Any, sent: list[int]) -> list[Any]:
        bench = Bench(
            lambda keyed: (
                keyed.window(window)
                .aggregate(empty, add)
                .map_values(refuse_windows_of_13)
                .on_error("skip")
            ),
            value="json",
        )
        bench.feed(*(("a", value, 1) for value in sent))
        return [values for _, (_, _, values), _ in bench.results()]

    first = [[2]] if step == 1 else []
    between = [[4, 6]] if step == 1 else []
    assert kept(append_even, [2, 3, 4, 6, 5, 8]) == [*first, [2, 4], *between, [6, 8]]
    assert kept(append, [2, 13, 4, 6, 8]) == [*first, [2, 4], *between, [6, 8]]


def nothing(so_far: Any, value: Any) -> None:
    return None


def test_an_aggregate_that_becomes_none_is_the_error_of_its_record() -> None:
    bench = Bench(lambda keyed: keyed.window(tumbling(records=3)).reduce(nothing), value="json")
    bench.send(("a", 1, 1), ("a", 2, 2))
    assert "returned None; return the aggregate" in str(failed(bench))


def test_other_windows_than_those_of_the_store_are_refused_by_name() -> None:
    bench = by_records(5, 2)
    bench.feed(("a", 1, 1))
    other = by_records(5, 5)
    other.kept = bench.kept
    complaint = "holds windows of 5 records every 2, .* declares windows of 5 records; give the"
    with pytest.raises(RunError, match=complaint):
        other.start()


def lasting(ttl: str, name: str = "w") -> Topology:
    app = Topology(name)
    windows = app.stream("in", key=str, value="json").group_by_key().window(tumbling(records=2))
    windows.aggregate(empty, append, ttl=ttl, store="kept").to("out", value="window")
    return app


@pytest.mark.parametrize("keep_stores", [True, False])
def test_with_a_ttl_a_key_that_pauses_begins_anew(keep_stores: bool) -> None:
    driver = TopologyTestDriver(lasting("1m"))
    send(driver, ("a", 1, 0), ("b", 2, 50_000))
    assert driver.state("kept") == {("a", 0, 1): [1], ("b", 0, 1): [2]}
    driver.restart(keep_stores=keep_stores)
    send(driver, ("a", 3, 100_000), ("b", 4, 100_000), ("a", 5, 100_001))
    shown = [(r.key, r.value.start, r.value.end, r.value.value) for r in driver.read("out")]
    assert shown == [("b", 0, 2, [2, 4]), ("a", 0, 2, [3, 5])]
    assert driver.state("kept") == {("a", 0, 2): [3, 5], ("b", 0, 2): [2, 4]}
    send(driver, ("b", 6, 900_000), ("b", 7, 900_000))
    driver.restart(keep_stores=keep_stores)
    send(driver, ("b", 8, 900_001))
    assert driver.state("kept") == {("b", 2, 3): [8]}


def send(driver: TopologyTestDriver, *records: tuple[str, Any, int]) -> None:
    for key, value, time in records:
        driver.send("in", value, key=key, timestamp=time)
    driver.run()


RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=30)
CUTS = st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=3)


@settings(deadline=None, max_examples=15)
@given(numbers=NUMBERS, history=RECORDS, cuts=CUTS)
def test_restarts_and_lost_stores_change_no_result(numbers: Any, history: Any, cuts: Any) -> None:
    app = Topology("w")
    keyed = app.stream("in", key=str, value="json").group_by_key()
    windows = keyed.window(sliding(records=numbers[0], step=numbers[1]))
    windows.aggregate(empty, append, store="kept").to("out", value="window")
    driver = TopologyTestDriver(app, partitions=3)
    restarts = dict(cuts)
    records = [(key, value, 1_000 + place) for place, (key, value) in enumerate(history)]
    for place, record in enumerate(records):
        if place in restarts:
            driver.restart(keep_stores=restarts[place])
        send(driver, record)
    found = [
        (record.key, (record.value.start, record.value.end, record.value.value), record.timestamp)
        for record in driver.read("out")
    ]
    assert sorted(found) == sorted(model_of(records, *numbers))
