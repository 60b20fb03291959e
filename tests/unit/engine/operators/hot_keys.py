"""Topologies with one keyed operator each, and records of one key for them.

The key is `hot`; records of the key `end` move stream time where something is to close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eosframework import Topology, hopping, session, sliding, tumbling
from eosframework.topology.dsl.builder import Stream
from eosframework.topology.dsl.streams import KeyedStream

FAR = 10**9
"""A time at which everything is over."""

Row = tuple[str, str, Any, int]
"""Topic, key, value and time of a record."""

Rows = Callable[[int], Iterator[Row]]


@dataclass(frozen=True)
class HotKey:
    """The work for `n` records of one key, and the number of results.

    Args:
        build: declares the topology.
        rows: gives the records, about as many as it is asked for.
        results: how many outputs they have, at least; so the operator did something.
        records: n; enough to fill entries many times.
        entry_bytes: with more an entry is full.
    """

    build: Callable[[Topology], object]
    rows: Rows
    results: Callable[[int], int]
    records: int = 80
    entry_bytes: int = 100


def every(step_ms: int, topic: str = "in", *, end: bool = True) -> Rows:
    """Records so far apart, and one that closes what they opened."""

    def rows(count: int) -> Iterator[Row]:
        for number in range(count):
            yield topic, "hot", number, number * step_ms
        if end:
            yield topic, "end", 0, FAR

    return rows


def turns(step_ms: int) -> Rows:
    """Records of both streams of a join in turns."""

    def rows(count: int) -> Iterator[Row]:
        for number in range(count):
            yield ("in", "other")[number % 2], "hot", number, number * step_ms
        yield "in", "end", 0, FAR

    return rows


def first_left(left_ms: int, right_ms: int, step_ms: int = 0) -> Rows:
    """Half of the records come from the left, all at one time, then the other half."""

    def rows(count: int) -> Iterator[Row]:
        for number in range(count // 2):
            yield "in", "hot", number, left_ms
        for number in range(count // 2):
            yield "other", "hot", number, right_ms + number * step_ms
        yield "in", "end", 0, FAR

    return rows


def _in(app: Topology) -> Stream:
    return app.stream("in", key=str, value="json")


def _keyed(how: Callable[[KeyedStream], Stream]) -> Callable[[Topology], object]:
    return lambda app: how(_in(app).group_by_key()).to("out", value="json")


def number_of(value: Any) -> Any:
    return value


def either(one: Any, other: Any) -> list[Any]:
    return [one, other]


def nothing() -> dict[str, int]:
    return {"n": 0}


def with_one(aggregate: dict[str, int], value: Any) -> dict[str, int]:
    return {"n": aggregate["n"] + 1}


def both(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {"n": one["n"] + other["n"]}


def remember(record: Any, context: Any) -> list[Any]:
    context.store("seen").put(record.timestamp, record.value)
    found = list(context.store("seen").items(record.timestamp, record.timestamp + 1))
    context.set_timer(record.timestamp + 3_600_000)
    return [(record.key, found)]


def remind(key: str, at: int, context: Any) -> list[Any]:
    context.store("seen").delete(at - 3_600_000)
    return [(key, at)]


def _joined(
    kind: Literal["inner", "left", "outer"], before: str, after: str, grace: str
) -> Callable[[Topology], object]:
    def build(app: Topology) -> object:
        other = app.stream("other", key=str, value="json")
        joined = _in(app).join_within(
            other, either, before=before, after=after, grace=grace, how=kind
        )
        return joined.to("out", value="json")

    return build


def _process(app: Topology) -> object:
    stores: Mapping[str, Any] = {"seen": {"key": "integer", "value": "json"}}
    return _in(app).process(remember, stores=stores, on_timer=remind).to("out", value="json")


def _looked_up(history: str | None) -> Callable[[Topology], object]:
    def build(app: Topology) -> object:
        rows = app.table("other", key=str, value="json", history=history)
        return _in(app).join(rows, either, how="left").to("out", value="json")

    return build


def _tables(app: Topology) -> object:
    left = app.table("in", key=str, value="json")
    right = app.table("other", key=str, value="json")
    return left.join(right, either, how="outer").to("out", value="json")


def _late_rows(count: int) -> Iterator[Row]:
    for number in range(count // 2):
        yield "other", "hot", number, 10_000_000 + number
    for number in range(count // 2):
        yield "other", "hot", number, number
    yield "in", "hot", 0, 10_000_000


def _all(count: int) -> int:
    return count


def _half(count: int) -> int:
    return count // 2


def _one(count: int) -> int:
    return 1


def _none(count: int) -> int:
    return 0


def _windowed(window: Any, grace: str, emit: Any) -> Callable[[Topology], object]:
    return _keyed(lambda keyed: keyed.window(window, grace=grace).count(emit=emit))


CASES: dict[str, HotKey] = {
    "count": HotKey(_keyed(lambda k: k.count()), every(0), _all),
    "count, emit commit": HotKey(_keyed(lambda k: k.count(emit="commit")), every(0), _one),
    "count, ttl": HotKey(_keyed(lambda k: k.count(ttl="1s")), every(100), _all),
    "sum": HotKey(_keyed(lambda k: k.sum(number_of)), every(0), _all),
    "reduce": HotKey(_keyed(lambda k: k.reduce(max)), every(1), _all),
    "aggregate": HotKey(_keyed(lambda k: k.aggregate(nothing, with_one)), every(1), _all),
    "deduplicate": HotKey(_keyed(lambda k: k.deduplicate("1s")), every(0), _one),
    "deduplicate, none alike": HotKey(
        _keyed(lambda k: k.deduplicate("1s", by=number_of)), every(10), _all
    ),
    "deduplicate, slices of time": HotKey(_keyed(lambda k: k.deduplicate("5ms")), every(5), _all),
    "sliding, one millisecond": HotKey(_windowed(sliding("1s"), "1s", "each"), every(0), _all),
    "sliding, closed apart": HotKey(_windowed(sliding("1s"), "0s", "close"), every(2000), _all),
    "process with timers": HotKey(_process, every(10), lambda count: 2 * count),
    "lookup": HotKey(_looked_up(None), turns(1), _half),
    "lookup as of a time": HotKey(_looked_up("1h"), turns(1), _half),
    "lookup as of a time, rows gone": HotKey(_looked_up("1s"), turns(500), _half),
    # An index takes eight bytes for each entry; small entries would make it as large as they are.
    "history, rows that come late": HotKey(
        _looked_up("1h"), _late_rows, _one, records=400, entry_bytes=1000
    ),
    "tables": HotKey(_tables, turns(1), _all),
}

for _emit in ("each", "commit", "close"):
    for _name, _window in {
        "tumbling": tumbling("10ms"),
        "hopping": hopping("10ms", every="5ms"),
        "session": session("5ms"),
    }.items():
        _given = _one if _emit != "each" else _all
        CASES[f"{_name}, {_emit}, in one window"] = HotKey(
            _windowed(_window, "1s", _emit), every(0), _given
        )
        CASES[f"{_name}, {_emit}, closed one by one"] = HotKey(
            _windowed(_window, "0s", _emit), every(20), _half
        )
        CASES[f"{_name}, {_emit}, closed at once"] = HotKey(
            _windowed(_window, "1d", _emit), every(20), _half
        )
        CASES[f"{_name}, {_emit}, closed behind many"] = HotKey(
            _windowed(_window, "10s", _emit), every(20), _half
        )

for _kind in ("inner", "left", "outer"):
    _alone = _none if _kind == "inner" else _half
    _pairs = _joined(_kind, "1s", "1s", "1s")
    CASES[f"{_kind} join, one side, one millisecond"] = HotKey(_pairs, every(0), _alone)
    CASES[f"{_kind} join, one side"] = HotKey(_pairs, every(1), _alone)
    CASES[f"{_kind} join, pairs"] = HotKey(_joined(_kind, "1ms", "1ms", "0s"), turns(3), _alone)
    CASES[f"{_kind} join, pairs and a long grace"] = HotKey(
        _joined(_kind, "1ms", "1ms", "100ms"), turns(1), _half
    )
    CASES[f"{_kind} join, both sides, none meets"] = HotKey(
        _joined(_kind, "0s", "1m", "1m"), first_left(0, 60_001), _alone
    )
    CASES[f"{_kind} join, spread, none meets"] = HotKey(
        _joined(_kind, "0s", "1m", "1m"), first_left(0, 60_001, 1), _alone
    )
