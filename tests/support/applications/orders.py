"""Orders and payments, each behind a repartition topic, and what their join is by the input alone.

Each partition of the input has its own disorder: some records are late, and partitions differ in
how far their times are apart. A record's time of writing is the greatest time of its partition up
to it (ADR 20), so the expected results follow from the partitions, in whatever order they are run.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from eosframework.kafka.client.partitioner import partition_of

TOPOLOGY = """\
application: NAME
sources:
  orders: {topic: NAME.orders, key: bytes, value: json}
  payments: {topic: NAME.payments, key: bytes, value: json}
streams:
  by_order:
    from: orders
    steps: [{group_by: {by: "tests.support.applications.orders:order_of", key: string}}]
  by_payment:
    from: payments
    steps: [{group_by: {by: "tests.support.applications.orders:order_of", key: string}}]
  paid:
    from: by_order
    steps:
      - join:
          with: by_payment
          by: "tests.support.applications.orders:both"
          within: 1h
          grace: 3h
          kind: outer
    to: [{topic: NAME.paid, key: string, value: json}]
"""

PARTITIONS = 4

HOUR_MS = 3_600_000

START_MS = 1_700_000_000_000

END_MS = START_MS + 100 * 24 * HOUR_MS

Result = tuple[str | None, str | None]


def order_of(record: Any) -> str:
    return record.value["order"]


def both(order: Any, payment: Any) -> list[str | None]:
    return [order and order["id"], payment and payment["id"]]


def with_id(ids: list[str], payment: Any) -> list[str]:
    return [*ids, payment["id"]]


@dataclass(frozen=True)
class Event:
    """A record of the input; `written` is its time of writing."""

    topic: str
    partition: int
    order: str
    name: str
    time: int
    written: int

    @property
    def key(self) -> bytes:
        """Its encoded key: rows of a table have that of their order."""
        return (self.order if self.topic == "prices" else self.name).encode()

    @property
    def value(self) -> bytes:
        """Its encoded value."""
        return json.dumps({"order": self.order, "id": self.name}).encode()


def events(seed: int, count: int) -> list[Event]:
    """Return orders and their payments in the order in which they are fed.

    Args:
        seed: of the random choices.
        count: the number of orders.
    """
    draw = random.Random(seed)
    given: list[tuple[int, str, int, str, str, int]] = []
    for number in range(count):
        at = START_MS + number * 24 * HOUR_MS // count
        order = f"o{number}"
        delay = draw.choice([0, 0, 0, 0, HOUR_MS // 2, 2 * HOUR_MS, 6 * HOUR_MS])
        given.append((at + delay, "orders", draw.randrange(PARTITIONS), order, order, at))
        for copy in range(draw.choice([0, 1, 1, 1, 2])):
            paid = at + draw.randrange(5 * HOUR_MS // 4)
            name, partition = f"p{number}.{copy}", draw.randrange(PARTITIONS)
            delay = draw.choice([0, 0, 0, HOUR_MS, 3 * HOUR_MS, 7 * HOUR_MS])
            given.append((paid + delay, "payments", partition, order, name, paid))
    latest: dict[tuple[str, int], int] = {}
    found: list[Event] = []
    for _, topic, partition, order, name, time in sorted(given):
        place = topic, partition
        latest[place] = max(time, latest.get(place, 0))
        found.append(Event(topic, partition, order, name, time, latest[place]))
    return found


def price_changes(seed: int, count: int) -> list[Event]:
    """Return rows of a table that is keyed by order: up to three versions of each.

    Args:
        seed: of the random choices.
        count: the number of orders.
    """
    draw = random.Random(seed)
    found: list[Event] = []
    for number in range(count):
        at, order = START_MS + number * 24 * HOUR_MS // count, f"o{number}"
        partition = partition_of(order.encode(), PARTITIONS)
        times = sorted(at + draw.randrange(-HOUR_MS, HOUR_MS) for _ in range(draw.randrange(4)))
        found += [
            Event("prices", partition, order, f"r{number}.{version}", time, time)
            for version, time in enumerate(times)
        ]
    return sorted(found, key=attrgetter("time"))


def ends(topics: Sequence[str] = ("orders", "payments")) -> Iterator[Event]:
    """Yield a record for each partition after which all others are decided."""
    keys = {partition_of(f"end.{n}".encode(), PARTITIONS): f"end.{n}" for n in range(64)}
    for topic in topics:
        for partition in range(PARTITIONS):
            yield Event(topic, partition, keys[partition], "end", END_MS, END_MS)


def expected(given: Sequence[Event]) -> Counter[Result]:
    """Return the results of the outer join within an hour, with a grace of three."""
    reach = 4 * HOUR_MS
    pairs = [event for event in given if event.topic != "prices"]
    timely = [event for event in pairs if event.time + reach >= event.written]
    payments: dict[str, list[Event]] = {}
    for event in timely:
        if event.topic == "payments":
            payments.setdefault(event.order, []).append(event)
    found: Counter[Result] = Counter()
    met: set[str] = set()
    for order in (event for event in timely if event.topic == "orders"):
        for payment in payments.get(order.order, ()):
            written = max(order.written, payment.written)
            is_open = min(order.time, payment.time) + reach >= written
            if abs(order.time - payment.time) <= HOUR_MS and is_open:
                found[order.name, payment.name] += 1
                met |= {order.name, payment.name}
    for event in timely:
        if event.name not in met:
            is_order = event.topic == "orders"
            found[(event.name, None) if is_order else (None, event.name)] += 1
    return found
