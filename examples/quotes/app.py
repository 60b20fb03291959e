"""Orders with the price that a service quotes for each."""

from __future__ import annotations

import os
from typing import Any

import httpx2

from eosframework import Topology, dead_letter

Order = dict[str, Any]


def open_client() -> httpx2.AsyncClient:
    """Return the client of the service, one for each worker."""
    return httpx2.AsyncClient(base_url=os.environ.get("QUOTES_URL", "http://127.0.0.1:8000"))


async def with_price(order: Order, http: httpx2.AsyncClient) -> Order:
    """Ask for the price of an order's item."""
    answer = await http.get(f"/prices/{order['item']}")
    answer.raise_for_status()
    return {**order, "cents": answer.json()["cents"]}


app = Topology("quotes")
orders = app.stream("orders", key=str, value="json").on_error(dead_letter("orders.dead"))
priced = orders.map_async(
    with_price,
    concurrency=100,
    timeout="5s",
    retry=["200ms", "1s"],
    resources={"http": open_client},
)
priced.to("orders.priced")
