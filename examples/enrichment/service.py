"""A shop's service: keeps customers and orders, and publishes each change with its transaction."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import psycopg
from fastapi import Depends, FastAPI, HTTPException
from models import Customer, Order

from eosframework.postgres.outbox import publish

CUSTOMERS, ORDERS = "shop.customers", "shop.orders"

service = FastAPI(title="shop")


def transaction() -> Generator[psycopg.Connection[Any]]:
    """A transaction of the request: committed if it succeeds, rolled back if it raises."""
    with psycopg.connect(os.environ["EOS_DATABASE__DSN"]) as connection:
        yield connection


Transaction = Annotated[psycopg.Connection[Any], Depends(transaction, scope="function")]


@service.put("/customers/{customer}", status_code=204)
def put_customer(customer: str, wanted: Customer, connection: Transaction) -> None:
    connection.execute(
        "INSERT INTO customers VALUES (%s, %s, %s) "
        "ON CONFLICT (id) DO UPDATE SET name = excluded.name, country = excluded.country",
        (customer, wanted.name, wanted.country),
    )
    publish(connection, CUSTOMERS, customer, wanted.model_dump_json())


@service.post("/orders", status_code=201)
def post_order(order: Order, connection: Transaction) -> dict[str, str]:
    try:
        inserted = connection.execute(
            "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (order.id, order.customer, order.cents),
        )
    except psycopg.errors.ForeignKeyViolation:
        raise HTTPException(404, f"there is no customer {order.customer}") from None
    if inserted.rowcount:  # A client that got no answer sends the order again.
        publish(connection, ORDERS, order.customer, order.model_dump_json())
    return {"id": str(order.id)}


def create_tables() -> None:
    """Create the service's tables, if they do not exist."""
    with psycopg.connect(os.environ["EOS_DATABASE__DSN"]) as connection:
        connection.execute(Path(__file__).with_name("tables.sql").read_bytes())


if __name__ == "__main__":
    import uvicorn

    create_tables()
    uvicorn.run(service, port=int(os.environ.get("PORT", "8000")))
