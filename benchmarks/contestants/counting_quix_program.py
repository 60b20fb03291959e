"""A count per key in Quix Streams; runs in the environment of `quix.lock`."""

from __future__ import annotations

import os
from typing import Any

from quixstreams import Application  # pyright: ignore[reportMissingImports]


def count(_: dict[str, Any], state: Any) -> bytes:
    counted = state.get("count", 0) + 1
    state.set("count", counted)
    return counted.to_bytes(8, "big")


def main() -> None:
    app = Application(
        broker_address=os.environ["BENCH_BOOTSTRAP_SERVERS"],
        consumer_group=os.environ["BENCH_APPLICATION"],
        processing_guarantee="exactly-once",
        commit_interval=float(os.environ["BENCH_COMMIT_SECONDS"]),
        auto_offset_reset="earliest",
        state_dir=os.environ["BENCH_STATE_DIRECTORY"],
        # Without these the consumer starves and each commit takes 100 ms.
        consumer_extra_config={"fetch.queue.backoff.ms": 5},
        producer_extra_config={"retry.backoff.ms": 10},
    )
    source = app.topic(os.environ["BENCH_INPUT"], value_deserializer="json")
    target = app.topic(os.environ["BENCH_OUTPUT"], value_serializer="bytes")
    app.dataframe(source).apply(count, stateful=True).to_topic(target)
    app.run()


if __name__ == "__main__":
    main()
