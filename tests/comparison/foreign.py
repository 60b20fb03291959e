"""The joins by foreign keys that are compared; java/Foreign.java is the same."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

from eosframework import Record, Topology
from eosframework.demo.feeds import rows_of

NAME = os.environ.get("COMPARED_NAME", "compared")
FIELDS = {"planes": "tailnum", "airlines": "carrier", "airports": "dest"}
"""By right table, the field of a flight with its key."""

KEYS = {"planes": "tailnum", "airlines": "carrier", "airports": "faa"}
KINDS = ("inner", "left")
Value = dict[str, Any]
Fed = tuple[str, str, Value | None]
"""Topic, key and value."""


def tailnum(flight: Record[str, Value]) -> Any:
    return flight.value["tailnum"]


def carrier(flight: Record[str, Value]) -> Any:
    return flight.value["carrier"]


def dest(flight: Record[str, Value]) -> Any:
    return flight.value["dest"]


def both(left: Value, right: Value | None) -> Value:
    return {"left": left, "right": right}


def declare() -> Topology:
    app = Topology(f"{NAME}.ours.foreign")
    flights = app.table(f"{NAME}.in.flights", name="flights", key=str, value="json")
    for name, key in (("planes", tailnum), ("airlines", carrier), ("airports", dest)):
        rows = app.table(f"{NAME}.in.{name}", name=name, key=str, value="json")
        for how in KINDS:
            joined = flights.join(rows, both, how=how, key=key, store=f"{name}.{how}")
            joined.to(f"{NAME}.ours.{name}.{how}", value="json")
    return app


def history(flights: int, changes: int, draw: random.Random) -> Iterator[Fed]:
    """Yield real flights and rows, mixed, then changes of either: moves, deletions and nulls."""
    left = [
        {field: row[field] for field in (*FIELDS.values(), "distance")}
        for row, _ in zip(rows_of("flights"), range(flights), strict=False)
    ]
    fed: list[Fed] = [("flights", str(n), row) for n, row in enumerate(left)]
    rights = {name: {f"{row[KEYS[name]]}": row for row in rows_of(name)} for name in FIELDS}
    fed += [(name, key, row) for name, rows in rights.items() for key, row in rows.items()]
    draw.shuffle(fed)
    yield from fed
    for n in range(changes):
        name = draw.choice(["flights", "flights", *FIELDS])
        if name == "flights":
            key = str(draw.randrange(flights))
            value = draw.choice(left) | {"n": n}
            for field in FIELDS.values():
                value |= {field: draw.choice([value[field], value[field], None, "none such"])}
        else:
            key = draw.choice([*rights[name]])
            value = rights[name][key] | {"n": n}
        yield name, key, draw.choice([value, value, value, None])


def joined(tables: dict[str, dict[str, Value]], name: str, how: str) -> dict[str, Value]:
    """Return the rows of a join, computed from the last rows of its tables."""
    pairs = {
        key: both(row, tables[name].get(f"{row[FIELDS[name]]}"))
        for key, row in tables["flights"].items()
    }
    is_left = how == "left"
    return {key: pair for key, pair in pairs.items() if is_left or pair["right"] is not None}


topology = declare()
