"""Calls of a service that answers after a time, with and without a journal of effects."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from eosframework import Effect, Topology

ANSWER_SECONDS = float(os.environ.get("BENCH_ANSWER_SECONDS", "0.02"))
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "64"))


async def call(order: dict[str, Any]) -> dict[str, Any]:
    """Answer after a time."""
    await asyncio.sleep(ANSWER_SECONDS)
    return order


async def call_once(order: dict[str, Any], effect: Effect) -> dict[str, Any]:
    """Do the same for an effect."""
    await asyncio.sleep(ANSWER_SECONDS)
    return order


app = Topology(os.environ["BENCH_APPLICATION"])
orders = app.stream(os.environ["BENCH_INPUT"], key=bytes, value=dict, name="orders")
if os.environ.get("BENCH_JOURNAL"):
    called = orders.call_once(
        call_once, on_doubt="retry", concurrency=CONCURRENCY, keep=os.environ["BENCH_JOURNAL"]
    )
else:
    called = orders.map_async(call, concurrency=CONCURRENCY)
called.named("called").to(os.environ["BENCH_OUTPUT"])
