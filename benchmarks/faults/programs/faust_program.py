"""faust-streaming, exactly_once; runs in the environment of `faust.lock`."""

from __future__ import annotations

from typing import Any

import faust  # pyright: ignore[reportMissingImports]

from benchmarks.faults.programs import stamp

app = faust.App(
    stamp.GROUP,
    broker=[f"kafka://{server}" for server in stamp.BOOTSTRAP_SERVERS.split(",")],
    store="memory://",
    datadir=stamp.DIRECTORY,
    processing_guarantee="exactly_once",
    broker_session_timeout=stamp.SESSION_TIMEOUT_MS / 1000,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=stamp.COMMIT_SECONDS,
    consumer_auto_offset_reset="earliest",
    topic_partitions=4,
    topic_replication_factor=stamp.REPLICAS,
    web_enabled=False,
)
numbers = app.topic(stamp.INPUT, key_type=bytes, value_serializer="json")
outputs = [app.topic(name, key_type=bytes, value_serializer="json") for name in stamp.OUTPUTS]
counts = app.Table("counts", key_type=bytes, value_type=int, default=int)


@app.agent(numbers)
async def count(stream: Any) -> None:
    async for key, record in stream.items():
        value = stamp.counted(record, counts[key])
        counts[key] = value["count"]
        for output in outputs:
            await output.send(key=key, value=value)


if __name__ == "__main__":
    app.main()
