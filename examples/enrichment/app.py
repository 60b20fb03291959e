"""Orders with the country of their customer, and each country's turnover by the day."""

from __future__ import annotations

from models import Customer, EnrichedOrder, Order

from eosframework import Record, Topology, dead_letter, tumbling


def with_customer(order: Order, customer: Customer | None) -> EnrichedOrder:
    country = None if customer is None else customer.country
    return EnrichedOrder(**order.model_dump(), country=country)


def country(record: Record[str, EnrichedOrder]) -> str:
    return record.value.country or "unknown"


def cents(order: EnrichedOrder) -> int:
    return order.cents


app = Topology("enrichment")
customers = app.table("shop.customers", key=str, value=Customer, name="customers")
orders = app.stream(
    "shop.orders", key=str, value=Order, name="orders", on_error=dead_letter("shop.dead")
)
enriched = orders.join(customers, with_customer, how="left").named("enriched")
enriched.to("shop.enriched")
by_country = enriched.group_by(country, name="by_country")
by_day = by_country.window(tumbling(days=1), grace="1h")
by_day.sum(cents, emit="commit", store="turnover").to("shop.turnover")
