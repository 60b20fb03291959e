"""A count per key as a topology."""

from __future__ import annotations

import os
from typing import Any, cast

from eosframework import Topology

app = Topology(os.environ["BENCH_APPLICATION"])
orders = app.stream(os.environ["BENCH_INPUT"], key=bytes, value=dict, name="orders")
counts = orders.group_by_key().count(store="counts", emit=cast(Any, os.environ["BENCH_EMIT"]))
counts.to(os.environ["BENCH_OUTPUT"])
