"""Quix Streams, exactly-once; runs in the environment of `quix.lock`."""

from __future__ import annotations

from typing import Any

from quixstreams import Application  # pyright: ignore[reportMissingImports]

from benchmarks.faults.programs import stamp


def main() -> None:
    app = Application(
        broker_address=stamp.BOOTSTRAP_SERVERS,
        consumer_group=stamp.GROUP,
        processing_guarantee="exactly-once",
        commit_interval=stamp.COMMIT_SECONDS,
        auto_offset_reset="earliest",
        state_dir=stamp.DIRECTORY,
        consumer_extra_config={"session.timeout.ms": stamp.SESSION_TIMEOUT_MS},
        producer_extra_config={"transaction.timeout.ms": stamp.TRANSACTION_TIMEOUT_MS},
    )
    numbers = app.dataframe(app.topic(stamp.INPUT, value_deserializer="json"))
    stamped = numbers.apply(count, stateful=True)
    for output in stamp.OUTPUTS:
        stamped = stamped.to_topic(app.topic(output, value_serializer="json"))
    app.run()


def count(record: dict[str, Any], state: Any) -> dict[str, Any]:
    """Stamp a record with its place among those of its key."""
    value = stamp.counted(record, state.get("count", 0))
    state.set("count", value["count"])
    return value


if __name__ == "__main__":
    main()
