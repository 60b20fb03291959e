"""The work as a topology."""

from __future__ import annotations

import os
from typing import Any

from eosframework import Topology


def double(order: dict[str, Any]) -> dict[str, Any]:
    order["amount"] *= 2
    return order


app = Topology(os.environ["BENCH_APPLICATION"])
orders = app.stream(os.environ["BENCH_INPUT"], key=bytes, value=dict, name="orders")
orders.map_values(double).named("doubled").to(os.environ["BENCH_OUTPUT"])
