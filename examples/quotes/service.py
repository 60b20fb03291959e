"""A service that quotes prices, and takes its time."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI, HTTPException

PRICES = {"chair": 4_900, "table": 19_900, "lamp": 2_900}

service = FastAPI()


@service.get("/prices/{item}")
async def price(item: str) -> dict[str, int]:
    """Return the price of an item."""
    await asyncio.sleep(0.02)
    if item not in PRICES:
        raise HTTPException(404, f"no item {item!r}")
    return {"cents": PRICES[item]}
