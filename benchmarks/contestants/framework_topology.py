"""The disciplines as topologies."""

from __future__ import annotations

import os
from typing import Any, cast

from benchmarks.contestants.models import Order
from eosframework import Topology, tumbling


def double(order: dict[str, Any]) -> dict[str, Any]:
    order["amount"] *= 2
    return order


def double_model(order: Order) -> Order:
    order.amount *= 2
    return order


def multiply(order: dict[str, Any], customer: dict[str, Any]) -> dict[str, Any]:
    order["amount"] *= customer["factor"]
    return order


def declare(discipline: str, source: str, target: str) -> Topology:
    """Declare what a discipline does."""
    app = Topology(os.environ["BENCH_APPLICATION"])
    value: Any = {"model": Order}.get(discipline, bytes if discipline in _AS_BYTES else dict)
    orders = app.stream(source, key=bytes, value=value, name="orders")
    match discipline:
        case "passthrough" | "passthrough-1k":
            orders.to(target)
        case "json":
            orders.map_values(double).named("doubled").to(target)
        case "model":
            orders.map_values(double_model).named("doubled").to(target)
        case "fan-out":
            orders.to(target, f"{target}.second", f"{target}.third")
        case "count":
            emit = cast(Any, os.environ["BENCH_EMIT"])
            orders.group_by_key().count(store="kept", emit=emit).to(target)
        case "window":
            windows = orders.group_by_key().window(tumbling(seconds=10))
            windows.count(store="kept").to(target)
        case "join":
            customers = app.table(os.environ["BENCH_TABLE"], key=bytes, value=dict, name="kept")
            orders.join(customers, multiply).to(target)
        case _:
            raise ValueError(f"there is no discipline {discipline!r}")
    return app


_AS_BYTES = ("passthrough", "passthrough-1k", "fan-out")

app = declare(
    os.environ.get("BENCH_DISCIPLINE", "json"),
    os.environ["BENCH_INPUT"],
    os.environ["BENCH_OUTPUT"],
)
