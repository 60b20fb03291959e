"""aiokafka's example of a transactional consume-process-produce loop, with our transform.

Runs in the environment of `aiokafka.lock`. An exception aborts the transaction and ends the
process.
"""

from __future__ import annotations

import asyncio
import json

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # pyright: ignore[reportMissingImports]

from benchmarks.faults.programs import stamp


async def main() -> None:
    consumer = AIOKafkaConsumer(
        stamp.INPUT,
        bootstrap_servers=stamp.BOOTSTRAP_SERVERS,
        enable_auto_commit=False,
        group_id=stamp.GROUP,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        session_timeout_ms=stamp.SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=1000,
    )
    await consumer.start()
    producer = AIOKafkaProducer(
        bootstrap_servers=stamp.BOOTSTRAP_SERVERS,
        transactional_id=stamp.TRANSACTIONAL_ID,
        transaction_timeout_ms=stamp.TRANSACTION_TIMEOUT_MS,
    )
    await producer.start()
    try:
        while True:
            batch = await consumer.getmany(timeout_ms=60_000)
            async with producer.transaction():
                positions = {}
                for partition, messages in batch.items():
                    for message in messages:
                        value = json.dumps(stamp.stamp(json.loads(message.value))).encode()
                        for topic in stamp.OUTPUTS:
                            await producer.send(topic, value=value, key=message.key)
                    positions[partition] = messages[-1].offset + 1
                await producer.send_offsets_to_transaction(positions, stamp.GROUP)
    finally:
        await consumer.stop()
        await producer.stop()


if __name__ == "__main__":
    asyncio.run(main())
