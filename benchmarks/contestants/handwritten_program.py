"""The disciplines by hand, each written out and tuned for itself."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from benchmarks.contestants.handwritten_loop import PARTITIONS, Steps, Task, run

TARGET = os.environ["BENCH_OUTPUT"]


def main() -> None:
    match os.environ["BENCH_DISCIPLINE"]:
        case "passthrough" | "passthrough-1k":
            run(Steps(copy))
        case "json":
            run(Steps(double))
        case "model":
            run(Steps(double_models()))
        case "fan-out":
            run(Steps(fan_out))
        case "join":
            table = os.environ["BENCH_TABLE"]
            run(Steps(join(table)), tables=[table])
        case "count" | "window" as discipline:
            from benchmarks.contestants import counting_program

            run(counting_program.steps(discipline))
        case other:
            raise ValueError(f"there is no discipline {other!r}")


def copy(task: Task, messages: Iterable[Any]) -> None:
    target, produce = TARGET, task.producer.produce
    for message in messages:
        produce(target, message.value(), message.key(), -1, None, None, message.timestamp()[1])


def double(task: Task, messages: Iterable[Any]) -> None:
    target, produce, loads, dumps = TARGET, task.producer.produce, orjson.loads, orjson.dumps
    for message in messages:
        order = loads(message.value())
        order["amount"] *= 2
        produce(target, dumps(order), message.key(), -1, None, None, message.timestamp()[1])


def double_models() -> Any:
    from benchmarks.contestants.models import Order

    validate = Order.__pydantic_validator__.validate_json
    to_json = Order.__pydantic_serializer__.to_json

    def convert(task: Task, messages: Iterable[Any]) -> None:
        target, produce = TARGET, task.producer.produce
        for message in messages:
            order = validate(message.value())
            order.amount *= 2
            produce(target, to_json(order), message.key(), -1, None, None, message.timestamp()[1])

    return convert


def fan_out(task: Task, messages: Iterable[Any]) -> None:
    first, second, third = TARGET, f"{TARGET}.second", f"{TARGET}.third"
    produce = task.producer.produce
    for message in messages:
        value, key, at = message.value(), message.key(), message.timestamp()[1]
        headers = message.headers()
        produce(first, value, key, -1, None, None, at, headers)
        produce(second, value, key, -1, None, None, at, headers)
        produce(third, value, key, -1, None, None, at, headers)


def join(table: str) -> Any:
    """Keep the table as a dictionary: read it whole first, then follow its changes."""
    factors = _rows(table)
    loads, dumps = orjson.loads, orjson.dumps

    def convert(task: Task, messages: Iterable[Any]) -> None:
        target, produce = TARGET, task.producer.produce
        for message in messages:
            if message.topic() == table:
                factors[message.key()] = loads(message.value())
                continue
            order, key = loads(message.value()), message.key()
            order["amount"] *= factors[key]["factor"]
            produce(target, dumps(order), key, -1, None, None, message.timestamp()[1])

    return convert


def _rows(table: str) -> dict[bytes, Any]:
    reader = Consumer(
        {
            "bootstrap.servers": os.environ["BENCH_BOOTSTRAP_SERVERS"],
            "group.id": "rows",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    unread = set(range(PARTITIONS))
    reader.assign([TopicPartition(table, number, OFFSET_BEGINNING) for number in unread])
    rows: dict[bytes, Any] = {}
    while unread:
        for message in reader.consume(5000, 0.1):
            error = message.error()
            if error is None:
                rows[message.key() or b""] = orjson.loads(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                unread.discard(message.partition() or 0)
    reader.close()
    return rows


if __name__ == "__main__":
    main()
