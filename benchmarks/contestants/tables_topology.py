"""Works with the changes of a table: as topologies what `java/Tables.java` declares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from eosframework import Record, Topology


def customer_of(order: Record[bytes, dict[str, Any]]) -> str:
    return order.value["customer"]


def amount(order: dict[str, Any]) -> int:
    return order["amount"]


def multiply(order: dict[str, Any], customer: dict[str, Any]) -> dict[str, Any]:
    order["amount"] *= customer["factor"]
    return order


def declare(work: Mapping[str, str]) -> Topology:
    """Declare what a work does.

    Args:
        work: the variables of the work; without them it is the one of `hops`.
    """
    app = Topology(work.get("BENCH_APPLICATION", "hops"))
    target = work.get("BENCH_OUTPUT", "out")
    orders = app.table(work.get("BENCH_INPUT", "orders"), key=bytes, value=dict, name="orders")
    if work.get("BENCH_DISCIPLINE") == "groups":
        groups = orders.group_by(customer_of, key=str, value="json", name="customers")
        emit = cast(Any, work.get("BENCH_EMIT", "commit"))
        groups.count(store="counts", emit=emit).to(target)
        groups.sum(amount, store="sums", emit=emit).to(f"{target}.sum")
    else:
        table = work.get("BENCH_TABLE", "customers")
        customers = app.table(table, key=str, value=dict, name="customers")
        orders.join(customers, multiply, key=customer_of, store="joined").to(target)
    return app


app = declare(os.environ)
