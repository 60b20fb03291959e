"""The records, as the service checks them and as the topology reads them."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, Field


class Customer(BaseModel):
    name: str = Field(min_length=1)
    country: str = Field(pattern="^[A-Z]{2}$")


class Order(BaseModel):
    id: UUID
    customer: str
    cents: int = Field(gt=0)


class EnrichedOrder(Order):
    country: str | None
