"""A user's program that calls all of the public API; it is type-checked and never run."""

# pyright: strict
# pyright: reportUnusedFunction=false

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from eosframework import (
    Context,
    EosError,
    GlobalTable,
    KeyedStore,
    KeyedStream,
    Record,
    RunningWorker,
    Serde,
    Stream,
    Topology,
    WindowedStream,
    WindowResult,
    WorkerStatus,
    dead_letter,
    hopping,
    json_schema,
    run,
    serde_of,
    session,
    sliding,
    start,
    tumbling,
)
from eosframework.kafka import ReadCommittedConsumer, TransactionalProducer
from eosframework.postgres.outbox import emit, publish, publish_async
from eosframework.spark import both, kafka_sink, table_sink
from eosframework.spark.backfill import Backfill
from eosframework.testing import Fault, TopologyTestDriver, crash_everywhere


class Order(BaseModel):
    customer: str
    amount: float
    at: datetime


@dataclass
class Total:
    amount: float = 0


def placed(order: Order) -> datetime:
    return order.at


def is_large(order: Order) -> bool:
    return order.amount > 100


def customer(record: Record) -> str:
    order: Order = record.value
    return order.customer


def add(total: Total, order: Order) -> Total:
    return Total(total.amount + order.amount)


def with_name(order: Order, row: dict[str, Any] | None) -> dict[str, Any]:
    return {**order.model_dump(), "name": row and row["name"]}


def first_order(record: Record, context: Context) -> Iterator[Record]:
    seen: KeyedStore = context.store("seen")
    if seen.get(record.key) is None:
        seen.put(record.key, record.timestamp)
        context.set_timer(record.timestamp + 60_000)
        yield record.replace(value={"first": True})


def forget(key: str, at: int, context: Context) -> None:
    context.store("seen").delete(key)


shop = Topology("shop")
dead = dead_letter("orders.dead", retry="1m")
orders: Stream = shop.stream("orders", key=str, value=Order, timestamp=placed, on_error=dead)
names: Stream = shop.table("customers", key=str, value=dict, ttl=timedelta(days=30))
countries: GlobalTable = shop.global_table("countries", key=str, value="json")
by_customer: KeyedStream = orders.filter(is_large).group_by(customer, key=str, value=Order)
by_customer.aggregate(Total, add, value=serde_of(dict)).to("totals", value="json")
hours: WindowedStream = by_customer.window(tumbling(hours=1), grace="5m")
hours.count(emit="close").to("hourly", value="json")
by_customer.window(hopping("1h", every="10m")).sum(lambda order: order.amount)
by_customer.window(sliding("5m")).count()
by_customer.window(session(minutes=30)).count()
orders.join(names, with_name, how="left").to("named", value="json")
orders.join_within(orders, lambda left, right: left, "10m").to("pairs", value="json")
orders.process(first_order, stores={"seen": {"value": int, "ttl": "1d"}}, on_timer=forget)
large, rest = orders.split(is_large)
large.merge(rest).to(lambda record: f"orders.{record.partition}", topics=["orders.0", "orders.1"])
branches: dict[str, Stream] = orders.branch({"large": is_large}, default="small")
branches["large"].to_table("large_orders", mode="upsert", keys="customer")
registered = json_schema("orders", model=Order)
plain: Serde = serde_of(Order)


def test_totals() -> None:
    driver = TopologyTestDriver(shop, partitions=2)
    driver.send("orders", {"customer": "ann", "amount": 3.5}, key="ann", timestamp=1)
    driver.run()
    records: list[Record] = driver.read("hourly")
    result: WindowResult = records[0].value
    assert result.end - result.start == 3_600_000


def backfill() -> None:
    try:
        Backfill(shop, job="history", start=["beginning"]).run()
    except EosError as error:
        print(error)


def sink(rows: Any) -> None:
    written = kafka_sink("delays", application="report", key="origin", value="struct", shards=8)
    stored = table_sink("delays", dsn="postgresql://db/shop", mode="upsert", keys=["origin"])
    rows.writeStream.foreachBatch(both(written, stored)).start()
    written.write(rows, job="january")


def produce(connection: Any) -> None:
    producer = TransactionalProducer({"transactional.id": "shop", "bootstrap.servers": "localhost"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"value", key=b"key")
    producer.commit_transaction()
    consumer = ReadCommittedConsumer({"group.id": "shop", "bootstrap.servers": "localhost"})
    message = consumer.poll(1.0)
    if message is not None:
        value: bytes | None = message.value()
        print(value)
    publish(connection, "orders", "ann", b"{}", headers=[("source", b"shop")])
    emit(connection, "orders", "ann", b"{}")
    print(Fault, crash_everywhere)


async def publish_in_a_service(connection: object) -> None:
    await publish_async(connection, "orders", "ann", b"{}")


def run_in_a_script(app: Topology) -> int:
    status: WorkerStatus = run(app, config="shop.yaml", until_caught_up=True)
    return status.records


def run_in_a_service(app: str) -> dict[str, str]:
    with start(app, overrides={"worker.instance": "shop.0"}) as worker:
        running: RunningWorker = worker
        has_ended: bool = running.wait(timeout_seconds=1.0)
        if not has_ended:
            running.stop()
        return dict(running.status().tasks)
