"""A topology whose types fit, and lines that do not fit, each with the complaint that is due.

basedpyright and mypy read it; a complaint that does not come is an error as well.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, assert_type

from pydantic import BaseModel

from eosframework import Record, Stream, Topology, WindowResult, tumbling


class Order(BaseModel):
    user: str
    cents: int


class Customer(BaseModel):
    name: str


def euros(order: Order) -> Decimal:
    return Decimal(order.cents) / 100


def by_user(record: Record[str, Order]) -> str:
    return record.value.user


def with_name(order: Order, customer: Customer | None) -> tuple[str, int]:
    return customer.name if customer else "", order.cents


def split(record: Record[str, Order]) -> Iterator[tuple[int, Order]]:
    yield record.value.cents, record.value


def shout(text: str) -> str:
    return text.upper()


def no_money() -> Decimal:
    return Decimal(0)


def add(total: Decimal, order: Order) -> Decimal:
    return total + euros(order)


app = Topology("typed")
orders = app.stream("orders", key=str, value=Order)
customers = app.table("customers", key=str, value=Customer)
by_name = app.stream("other", key="string", value="json")

assert_type(orders, Stream[str, Order])
assert_type(orders.map_values(euros), Stream[str, Decimal])
assert_type(orders.filter(lambda order: order.cents > 0), Stream[str, Order])
assert_type(orders.flat_map(split), Stream[int, Order])
assert_type(orders.join(customers, with_name, how="left"), Stream[str, tuple[str, int]])
assert_type(orders.group_by(by_user).sum(euros), Stream[str, Decimal])
assert_type(orders.group_by(by_user).count(), Stream[str, int])
assert_type(orders.group_by_key().aggregate(no_money, add), Stream[str, Decimal])
windows = orders.group_by_key().window(tumbling(hours=1))
assert_type(windows.aggregate(no_money, add), Stream[str, WindowResult[Decimal]])
by_name.map_values(shout)
orders.map_values("typed:euros").to("euros")


def anything(stream: Stream) -> Stream[Any, str]:
    return stream.map_values(shout)


orders.map_values(shout)  # type: ignore[arg-type]
prices = orders.map_values(euros)
prices.map_values(euros)  # type: ignore[arg-type]
orders.filter(lambda o: o.no)  # type: ignore[attr-defined]
orders.join(customers, add)  # type: ignore[arg-type]
keyed = orders.group_by_key()
keyed.aggregate(no_money, with_name)  # type: ignore[arg-type]
orders.group_by(shout)  # type: ignore[arg-type]
windows.join(customers)  # type: ignore[attr-defined]
orders.merge(prices)  # type: ignore[arg-type]
