"""The disciplines in Quix Streams; runs in the environment of `quix.lock`."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from quixstreams import Application  # pyright: ignore[reportMissingImports]

TARGET = os.environ["BENCH_OUTPUT"]


def main() -> None:
    discipline = os.environ["BENCH_DISCIPLINE"]
    guarantee = os.environ.get("BENCH_GUARANTEE", "exactly_once")
    app = Application(
        broker_address=os.environ["BENCH_BOOTSTRAP_SERVERS"],
        consumer_group=os.environ["BENCH_APPLICATION"],
        processing_guarantee=guarantee.replace("_", "-"),
        commit_interval=float(os.environ["BENCH_COMMIT_SECONDS"]),
        auto_offset_reset="earliest",
        state_dir=os.environ["BENCH_STATE_DIRECTORY"],
        # Without these the consumer starves and each commit takes 100 ms.
        consumer_extra_config={"fetch.queue.backoff.ms": 5},
        producer_extra_config={"retry.backoff.ms": 10},
    )
    as_bytes = discipline in ("passthrough", "passthrough-1k", "fan-out", "model")
    source = app.topic(
        os.environ["BENCH_INPUT"], value_deserializer="bytes" if as_bytes else "json"
    )
    declare(app, discipline, app.dataframe(source))
    app.run()


def declare(app: Any, discipline: str, orders: Any) -> None:
    """Declare what a discipline does."""

    def target(serializer: str, suffix: str = "") -> Any:
        return app.topic(TARGET + suffix, value_serializer=serializer)

    match discipline:
        case "passthrough" | "passthrough-1k":
            orders.to_topic(target("bytes"))
        case "json":
            orders.apply(double).to_topic(target("json"))
        case "model":
            orders.apply(double_model()).to_topic(target("bytes"))
        case "fan-out":
            for suffix in ("", ".second", ".third"):
                orders = orders.to_topic(target("bytes", suffix))
        case "count":
            orders.apply(count, stateful=True).to_topic(target("bytes"))
        case "window":
            counts = orders.tumbling_window(timedelta(seconds=10)).count().current()
            counts.to_topic(target("json"))
        case "join":
            table = app.topic(os.environ["BENCH_TABLE"], value_deserializer="json")
            joined = orders.join_asof(app.dataframe(table), how="inner", on_merge=multiply)
            joined.to_topic(target("json"))
        case _:
            raise ValueError(f"there is no discipline {discipline!r}")


def double(order: dict[str, Any]) -> dict[str, Any]:
    order["amount"] *= 2
    return order


def double_model() -> Any:
    from benchmarks.contestants.models import Order

    validate = Order.__pydantic_validator__.validate_json
    to_json = Order.__pydantic_serializer__.to_json

    def convert(data: bytes) -> bytes:
        order = validate(data)
        order.amount *= 2
        return to_json(order)

    return convert


def count(_: dict[str, Any], state: Any) -> bytes:
    counted = state.get("count", 0) + 1
    state.set("count", counted)
    return counted.to_bytes(8, "big")


def multiply(order: dict[str, Any], customer: dict[str, Any]) -> dict[str, Any]:
    return {**order, "amount": order["amount"] * customer["factor"]}


if __name__ == "__main__":
    main()
