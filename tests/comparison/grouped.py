"""The grouped tables that are compared; java/Groups.java declares the same."""

from __future__ import annotations

import random
from typing import Any

from eosframework import Record, Topology
from eosframework.topology.dsl.streams import KeyedStream, Stream
from tests.comparison.flights import Fed
from tests.comparison.ours import NAME

Value = dict[str, Any]
OUTPUTS = ("count", "sum", "reduce", "aggregate", "far", "joined", "sizes")

HISTORY = 12_000
"""Changes of the random history."""


def declare() -> Topology:
    app = Topology(f"{NAME}.ours.groups")
    rows = app.table(f"{NAME}.in.grouped", name="grouped", key=str, value="json")
    others = app.table(f"{NAME}.in.others", name="others", key=str, value="json")
    groups = by_destination(rows, "rows")
    counts = groups.count(store="count")
    _write(counts, "count")
    _write(groups.sum(miles, store="sum"), "sum")
    _write(groups.reduce(added, taken, store="reduce"), "reduce")
    _write(groups.aggregate(nothing, with_row, without_row, store="aggregate"), "aggregate")
    _write(by_destination(rows.filter(is_far), "far").count(store="far"), "far")
    _write(by_destination(rows.join(others, own), "joined").count(store="joined"), "joined")
    sizes = counts.group_by(last_digit, key=str, name="sizes")
    _write(sizes.count(store="sizes"), "sizes")
    return app


def by_destination(table: Stream, name: str) -> KeyedStream:
    return table.group_by(destination, key=str, value="json", name=name)


def destination(record: Record[str, Value]) -> str | None:
    return record.value["to"]


def last_digit(record: Record[str, int]) -> str:
    return str(record.value % 10)


def miles(row: Value) -> int:
    return row["miles"]


def is_far(row: Value) -> bool:
    return row["miles"] > 1000


def own(row: Value, other: Value) -> Value:
    return row


def added(one: Value, other: Value) -> Value:
    return {"n": other["n"], "miles": one["miles"] + other["miles"]}


def taken(one: Value, other: Value) -> Value:
    return {"n": other["n"], "miles": one["miles"] - other["miles"]}


def nothing() -> Value:
    return {}


def with_row(seen: Value, row: Value) -> Value | None:
    return _seen(seen, row, 1)


def without_row(seen: Value, row: Value) -> Value | None:
    return _seen(seen, row, -1)


def _seen(seen: Value, row: Value, by: int) -> Value | None:
    key = str(row["miles"])
    changed = {**seen, key: seen.get(key, 0) + by}
    return {miles: count for miles, count in changed.items() if count} or None


def _write(stream: Stream, output: str) -> None:
    stream.to(f"{NAME}.ours.groups.{output}", key=str, value="json")


def history(seed: int, first: int) -> list[Fed]:
    """Return changes of 300 rows at random: moves, deletions, no group, out of order, far back.

    Args:
        seed: of the random numbers.
        first: event time of the first change in milliseconds.
    """
    draw, found = random.Random(seed), list[Fed]()
    groups = [None, *(f"group-{number}" for number in range(12))]
    for n in range(HISTORY):
        at = first + n * 1000 - draw.choice((0, 0, 5_000, 3_600_000))
        row = {"n": n, "to": draw.choice(groups), "miles": draw.choice((100, 900, 1100, 2000))}
        found.append((f"row-{draw.randrange(300)}", draw.choice((row, row, row, None)), at))
    return found


groups = declare()
