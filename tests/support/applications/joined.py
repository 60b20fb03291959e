"""A shop whose orders are joined in every way, and an independent verifier of what comes out.

Orders find the prices of their customer's tier as they were at the order's time, the name of their
product, and their payment, which comes up to 10 s later, out of order, or never.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import KEEP, Pipeline
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

TOPOLOGY = """\
application: NAME
sources:
  orders: {topic: NAME.in, key: string, value: json}
  payments: {topic: NAME.payments, key: string, value: json}
  customers: {topic: NAME.customers, key: string, value: json, history: 1h}
  products: {topic: NAME.products, key: string, value: json, global: true}
streams:
  priced:
    from: orders
    steps:
      - group_by: {by: "tests.support.applications.joined:customer_of", key: string}
      - join: {with: customers, by: "tests.support.applications.joined:with_tier", kind: left}
      - join: {with: products, by: "tests.support.applications.joined:with_name",
               key: "tests.support.applications.joined:product_of"}
    to: {topic: NAME.priced, value: json}
  paid:
    from: orders
    steps:
      - join: {with: payments, by: "tests.support.applications.joined:with_payment", kind: left,
               before: 0s, after: 10s, grace: 5s}
    to: {topic: NAME.paid, value: json}
  discounts:
    from: customers
    steps: [filter: "tests.support.applications.joined:is_gold"]
    to: {topic: NAME.gold, value: json}
"""

START = 1_700_000_000_000
CUSTOMERS, PRODUCTS, PARTITIONS = 8, 5, 4
TIERS = ("gold", "silver", "none")


def customer_of(record: Any) -> str:
    return record.value["customer"]


def product_of(record: Any) -> str:
    return record.value["product"]


def with_tier(order: dict[str, Any], customer: dict[str, Any] | None) -> dict[str, Any]:
    return {**order, "tier": customer and customer["tier"]}


def with_name(order: dict[str, Any], product: dict[str, Any]) -> dict[str, Any]:
    return {**order, "name": product["name"]}


def with_payment(order: dict[str, Any], payment: dict[str, Any] | None) -> dict[str, Any]:
    return {"id": order["id"], "paid": payment and payment["amount"]}


def is_gold(customer: dict[str, Any]) -> bool:
    return customer["tier"] == "gold"


class Shop(Pipeline):
    """The application, its inputs, and what its outputs must say."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path, seed: int) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=TOPOLOGY,
            outputs={"priced": 1, "paid": 1, "gold": 1},
            partitions=PARTITIONS,
        )
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        more = {"payments": PARTITIONS, "customers": PARTITIONS, "products": 2}
        topics = [NewTopic(f"{name}.{t}", count, 1, config=KEEP) for t, count in more.items()]
        create_topics(admin, topics)
        self.state = directory / "state"
        self._draw = random.Random(seed)
        self._orders: list[tuple[int, dict[str, Any]]] = []
        self._payments: dict[str, int] = {}
        self._tiers: dict[str, list[tuple[int, str | None]]] = {}
        self.apply()

    @property
    def keeping(self) -> list[str]:
        """Settings that keep the stores in this pipeline's directory."""
        return [f"state.directory={self.state}", "worker.session_timeout_seconds=6"]

    def fill(self, orders: int) -> None:
        """Write all inputs: ten orders a second, up to 4 s out of order."""
        # Keys have to lie where the worker would put them.
        producer = feeder(self.bootstrap_servers, partitioner="murmur2_random")
        span = orders * 100
        for number in range(PRODUCTS):
            self._send(producer, "products", str(number), {"name": f"product {number}"}, START)
        changes = sorted(self._draw.randrange(span) for _ in range(orders // 10))
        for at in [0] * CUSTOMERS + changes:
            customer = str(self._draw.randrange(CUSTOMERS))
            tier = self._draw.choice([*TIERS, None])
            self._tiers.setdefault(customer, []).append((START + at, tier))
            row = None if tier is None else {"tier": tier}
            self._send(producer, "customers", customer, row, START + at)
        payments: list[tuple[int, str]] = []
        for number in range(orders):
            at = START + number * 100 + self._draw.randrange(-2000, 2000)
            order = {
                "id": str(number),
                "customer": str(self._draw.randrange(CUSTOMERS)),
                "product": str(self._draw.randrange(PRODUCTS + 1)),
            }
            self._orders.append((at, order))
            self._send(producer, "in", order["id"], order, at)
            if self._draw.random() < 0.7:
                paid = at + self._draw.choice([0, 10_000, self._draw.randrange(10_000)])
                self._payments[order["id"]] = number
                payments.append((paid, order["id"]))
        for paid, order_id in sorted(payments):
            amount = {"amount": self._payments[order_id]}
            self._send(producer, "payments", order_id, amount, paid)
        for partition in range(PARTITIONS):
            end = {"id": "end", "customer": "none", "product": "none"}
            for topic in ("in", "payments"):
                at = START + span + 60_000
                body = json.dumps(end if topic == "in" else {"amount": 0}).encode()
                key = f"{topic}{partition}".encode()
                producer.produce(f"{self.name}.{topic}", body, key, partition, timestamp=at)
        assert producer.flush(60) == 0

    def findings(self) -> list[str]:
        """What is wrong in the outputs."""
        priced: Counter[str] = Counter()
        for at, order in self._orders:
            if int(order["product"]) < PRODUCTS:
                tier = [t for time, t in self._tiers.get(order["customer"], ()) if time <= at]
                name = f"product {order['product']}"
                priced[_text({**order, "tier": tier[-1] if tier else None, "name": name})] += 1
        return [*self._differences("priced", priced), *self.findings_in_paid()]

    def findings_in_paid(self) -> list[str]:
        """What is wrong in the output of orders with their payments."""
        ids = [order["id"] for _, order in self._orders]
        paid = Counter(_text({"id": one, "paid": self._payments.get(one)}) for one in ids)
        return self._differences("paid", paid)

    def _differences(self, topic: str, expected: Counter[str]) -> list[str]:
        values = [json.loads(m.value() or b"") for m in self.read(f"{self.name}.{topic}")]
        found = Counter(_text(value) for value in values if value["id"] != "end")
        lacking = [f"{topic} lacks {each} ({n})" for each, n in (expected - found).items()]
        return [*lacking, *(f"{topic} has {each} ({n})" for each, n in (found - expected).items())]

    def gold_rows(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The customers that are gold, as the output says and as they are."""
        said: dict[str, Any] = {}
        for message in self.read(f"{self.name}.gold"):
            said[(message.key() or b"").decode()] = message.value()
        gold = {customer for customer, tiers in self._tiers.items() if tiers[-1][1] == "gold"}
        return (
            {customer: True for customer, row in said.items() if row is not None},
            dict.fromkeys(gold, True),
        )

    def _send(self, producer: Producer, topic: str, key: str, value: Any, at: int) -> None:
        body = None if value is None else json.dumps(value).encode()
        producer.produce(f"{self.name}.{topic}", body, key, timestamp=at)


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)
