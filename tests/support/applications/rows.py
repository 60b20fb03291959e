"""Models and row functions of the topologies that end in tables."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from eosframework import Record


class Number(BaseModel):
    n: int


class Order(BaseModel):
    id: int
    customer: str
    amount: Decimal
    at: datetime
    tags: list[str] = []


class Total(BaseModel):
    id: int
    note: str


class WiderNumber(Number):
    square: int | None = None


def two_rows(record: Record) -> list[dict[str, Any]]:
    """Give each number twice, but thirteen no row at all."""
    n = record.value["n"]
    return [] if n == 13 else [{"n": n}, {"n": n}]
