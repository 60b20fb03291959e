"""The coroutines of the topologies that the fault tests run."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import httpx2

Value = dict[str, int]


def _delay_seconds(n: int) -> float:
    """A delay that differs from number to number, so that calls end in another order."""
    return (n * 7919 % 13) / 1000


async def double(value: Value) -> Value:
    await asyncio.sleep(_delay_seconds(value["n"]))
    return {"n": value["n"] * 2}


async def is_served(value: Value) -> bool:
    await asyncio.sleep(_delay_seconds(value["n"] + 5))
    return True


async def hang_at_thirteen(value: Value) -> Value:
    """Double, but hang at record 13 while EOS_TEST_HANGS is set."""
    if value["n"] == 13 and os.environ.get("EOS_TEST_HANGS"):
        await asyncio.sleep(3600)
    return await double(value)


async def swallow_at_thirteen(value: Value) -> Value:
    """Never end at record 13, whatever is done about it."""
    while value["n"] == 13:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue
    return await double(value)


async def block_at_thirteen(value: Value) -> Value:
    """Block the event loop at record 13 for as long as EOS_TEST_BLOCKS says."""
    if value["n"] == 13:
        time.sleep(float(os.environ["EOS_TEST_BLOCKS"]))
    return await double(value)


async def refuse_at_thirteen(value: Value) -> Value:
    if value["n"] == 13:
        raise ValueError("thirteen is not served")
    return await double(value)


async def with_client(value: Value, client: Any) -> Value:
    assert client == "client"
    return await double(value)


async def open_nothing() -> Any:
    raise ConnectionRefusedError("nothing listens there")


def open_client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=os.environ["EOS_TEST_SERVICE"], timeout=None)


async def ask(value: Value, http: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await http.get(f"/{value['n']}")
    return {**value, **answer.raise_for_status().json()}
