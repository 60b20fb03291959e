"""The order as a model, for all who validate in Python."""

from __future__ import annotations

from pydantic import BaseModel


class Order(BaseModel):
    """Fields of every JSON value of the input."""

    order: int
    customer: str
    product: str
    amount: int
    price: float
    placed_at: str
    express: bool
    tags: list[str]
    note: str
