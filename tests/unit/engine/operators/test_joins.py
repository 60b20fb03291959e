"""Tables and joins against models that know nothing of stores: lists and dicts of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.engine.codegen.compiler import CompiledPart
from eosframework.engine.operators import history
from eosframework.engine.operators import stream_joins as waiting
from eosframework.topology.dsl.builder import Topology
from tests.support.applications.one_task import OneTask, Out, compiled_task

KEYS = st.sampled_from(["a", "b"])
TIMES = st.integers(1, 60)
VALUES = st.none() | st.integers(0, 9)
Action = tuple[str, Any]


def actions(*topics: str, nulls: bool = True, times: Any = TIMES) -> Any:
    """Records of some topics in any order of times, between commits, aborts and restarts."""
    values = VALUES if nulls else st.integers(0, 9)
    record = st.tuples(st.just("send"), st.tuples(st.sampled_from(topics), KEYS, values, times))
    ends = st.sampled_from([("commit", None), ("abort", None), ("restart", None)])
    return st.lists(record | record | record | record | ends, max_size=40)


@pytest.fixture(params=["roomy", "crowded"], scope="module")
def entries(request: pytest.FixtureRequest) -> Iterator[None]:
    """The records of a key fit one entry, or need several."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "crowded":
            patch.setattr(waiting, "_PIECE_BYTES", 20)
            patch.setattr(waiting, "_SPAN_BYTES", 20)
            patch.setattr(history, "CHUNK_BYTES", 20)
        yield


def pair(left: Any, right: Any) -> list[Any]:
    if left == 9 or right == 9:
        raise ValueError("nine is not served")
    return [left, right]


def play(
    task: OneTask, steps: list[Action], model: Callable[[str, str, Any, int], list[Any]]
) -> None:
    """Run steps; after each record, what came out is what the model says, also when replayed."""
    since_commit: list[list[Out]] = []
    for what, record in steps:
        if what == "send":
            came = task.send(*record)
            assert [out[1:] for out in came] == model(*record)
            since_commit.append(came)
        elif what == "abort":
            assert task.abort_and_replay() == since_commit
        else:
            task.commit()
            since_commit = []
            if what == "restart":
                task.restart()


def passes(value: Any) -> bool:
    return value % 3 != 0


def plus(value: Any) -> Any:
    return value + 10


@cache
def joined_with_table(how: Any) -> CompiledPart:
    app = Topology("app")
    table = app.table("table", key=str, value="json").filter(passes).map_values(plus)
    stream = app.stream("stream", key=str, value="json", on_error="skip")
    stream.on_error("skip").join(table, pair, how=how).to("out", value="json")
    return compiled_task(app)


@pytest.mark.parametrize("how", ["inner", "left"])
@settings(deadline=None, max_examples=100)
@given(steps=actions("stream", "table"))
def test_a_record_meets_the_row_that_its_table_has_then(how: str, steps: list[Action]) -> None:
    rows: dict[str, Any] = {}

    def model(topic: str, key: str, value: Any, time: int) -> list[Any]:
        if topic == "table":
            rows[key] = value
            return []
        row = rows.get(key)
        row = None if row is None or not passes(row) else plus(row)
        if value is None or value == 9 or (row is None and how == "inner"):
            return []
        return [(key, [value, row], time)]

    play(OneTask(joined_with_table(how)), steps, model)


@cache
def joined_tables(how: Any) -> CompiledPart:
    app = Topology("app")
    left = app.table("left", key=str, value="json").filter(passes)
    right = app.table("right", key=str, value="json").map_values(plus)
    joined = left.on_error("skip").join(right, pair, how=how)
    joined.filter(lambda value: value[0] != 4).to("out", value="json")
    return compiled_task(app)


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@settings(deadline=None, max_examples=100)
@given(steps=actions("left", "right"))
def test_a_join_of_tables_changes_as_they_do_and_deletes_what_ceases_to_be(
    how: str, steps: list[Action]
) -> None:
    left: dict[str, tuple[Any, int]] = {}
    right: dict[str, tuple[Any, int]] = {}

    def shown(topic: str, key: str) -> tuple[Any, int] | None:
        row = (left if topic == "left" else right).get(key)
        if row is None or (topic == "left" and not passes(row[0])):
            return None
        return row[0] if topic == "left" else plus(row[0]), row[1]

    def result(key: str) -> Any:
        one, other = shown("left", key), shown("right", key)
        if one is None and (how != "outer" or other is None):
            return None
        if other is None and how == "inner":
            return None
        if one is not None and one[0] == 4:
            return None
        return [one and one[0], other and other[0]]

    def model(topic: str, key: str, value: Any, time: int) -> list[Any]:
        before, row_before = result(key), shown(topic, key)
        table = left if topic == "left" else right
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value, time
        after = result(key)
        unchanged = row_before is None and shown(topic, key) is None
        if unchanged or (before is None and after is None):
            return []
        other = shown("right" if topic == "left" else "left", key)
        return [(key, after, max(time, other[1] if other else 0))]

    steps = [(what, record) for what, record in steps if record is None or record[2] != 9]
    play(OneTask(joined_tables(how)), steps, model)


HISTORY = 20


@cache
def joined_as_of(how: Any) -> CompiledPart:
    app = Topology("app")
    table = app.table("table", key=str, value="json", history=f"{HISTORY}ms").map_values(plus)
    stream = app.stream("stream", key=str, value="json", on_error="skip")
    stream.join(table, pair, how=how).on_error("skip").to("out", value="json")
    table.to("changes", value="json")
    return compiled_task(app)


@pytest.mark.usefixtures("entries")
@pytest.mark.parametrize("how", ["inner", "left"])
@settings(deadline=None, max_examples=100)
@given(steps=actions("stream", "table"))
def test_a_record_out_of_order_meets_the_row_of_its_time(how: str, steps: list[Action]) -> None:
    versions: list[tuple[str, Any, int]] = []
    stream_time = 0

    def forget_deleted(key: str, oldest: int) -> None:
        past = [t for k, _, t in versions if k == key and t < oldest]
        is_remembered = bool(past) and max(past) >= oldest - HISTORY
        if latest(key, oldest - 1) is None and not is_remembered:
            versions[:] = [v for v in versions if v[0] != key or v[2] >= oldest]

    def latest(key: str, time: int) -> Any:
        found = [(t, i, v) for i, (k, v, t) in enumerate(versions) if k == key and t <= time]
        return max(found, key=lambda each: each[:2])[2] if found else None

    def model(topic: str, key: str, value: Any, time: int) -> list[Any]:
        nonlocal stream_time
        stream_time = max(stream_time, time)
        if topic == "table":
            if time < stream_time - HISTORY:
                forget_deleted(key, stream_time - HISTORY)
            before, newest = latest(key, 1000), max([t for k, _, t in versions if k == key] + [-1])
            versions.append((key, value, time))
            if time < newest or (before is None and value is None):
                return []
            return [(key, None if value is None else plus(value), time)]
        is_known = time >= stream_time - HISTORY or not any(
            k == key and t > time for k, _, t in versions
        )
        row = latest(key, time) if is_known else None
        if value is None or value == 9 or (row is None and how == "inner"):
            return []
        return [(key, [value, None if row is None else plus(row)], time)]

    task = OneTask(joined_as_of(how))
    play(task, steps, model)


BEFORE, AFTER, GRACE = 5, 8, 3


@cache
def joined_within(how: Any) -> CompiledPart:
    app = Topology("app")
    right = app.stream("right", key=str, value="json", on_error="skip")
    left = app.stream("left", key=str, value="json", on_error="skip").on_error("skip")
    left.join_within(
        right,
        pair,
        before=f"{BEFORE}ms",
        after=f"{AFTER}ms",
        grace=f"{GRACE}ms",
        how=how,
    ).to("out", value="json")
    return compiled_task(app)


@pytest.mark.usefixtures("entries")
@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@settings(deadline=None, max_examples=100)
@given(steps=actions("left", "right", times=st.integers(1, 120)))
def test_records_meet_within_their_interval_and_go_on_alone_when_it_is_over(
    how: str, steps: list[Action]
) -> None:
    seen: list[dict[str, Any]] = []
    stream_time = 0
    ahead = {"left": AFTER, "right": BEFORE}
    alone = {"inner": (), "left": ("left",), "outer": ("left", "right")}[how]

    def over(record: dict[str, Any]) -> bool:
        return record["time"] + ahead[record["side"]] + GRACE < stream_time

    def close() -> list[Any]:
        left_over = [r for r in seen if not r["done"] and over(r) and r["side"] in alone]
        left_over.sort(key=lambda r: (r["time"] + ahead[r["side"]], r["side"], r["key"]))
        results: list[Any] = []
        for record in left_over:
            record["done"] = True
            value = record["value"]
            values = [value, None] if record["side"] == "left" else [None, value]
            results += [] if value == 9 else [(record["key"], values, record["time"])]
        return results

    def model(side: str, key: str, value: Any, time: int) -> list[Any]:
        nonlocal stream_time
        stream_time = max(stream_time, time)
        record = {"side": side, "key": key, "value": value, "time": time, "done": False}
        if value is None or over(record):
            return close()
        met = [
            other
            for other in sorted(seen, key=lambda other: other["time"])
            if other["side"] != side
            and other["key"] == key
            and not over(other)
            and (
                time - BEFORE <= other["time"] <= time + AFTER
                if side == "left"
                else time - AFTER <= other["time"] <= time + BEFORE
            )
        ]
        if met and 9 in [value, *(other["value"] for other in met)]:
            return close()
        for each in met:
            each["done"] = record["done"] = True
        seen.append(record)
        results = [
            (
                key,
                [value, other["value"]] if side == "left" else [other["value"], value],
                max(time, other["time"]),
            )
            for other in met
        ]
        return [*results, *close()]

    play(OneTask(joined_within(how)), steps, model)
