"""Batches that librdkafka fetched and cannot read, named by their place in the log.

librdkafka unpacks a zstd batch into at most `receive.message.max.bytes`. It has no such limit for
gzip, lz4 and snappy, and brokers limit the compressed size alone.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from eosframework.records import TopicPartition

UNREADABLE = frozenset(
    {
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001
        KafkaError._BAD_MSG,  # noqa: SLF001
        KafkaError.INVALID_MSG,
    }
)
"""Errors of one batch: it cannot be unpacked, is cut, or its checksum does not match."""


def unreadable(partition: TopicPartition, offset: int | None, error: KafkaError) -> str:
    """Return the error message for a batch.

    Args:
        partition: of the log.
        offset: from which the batch was fetched; None: unknown.
        error: one of `UNREADABLE`.
    """
    place = f"{partition}" if offset is None or offset < 0 else f"{partition}@{offset}"
    cause = "it is damaged"
    if error.code() == KafkaError._BAD_COMPRESSION:  # noqa: SLF001
        cause = (
            "it is damaged, or unpacks to more than receive.message.max.bytes (librdkafka's limit, "
            "100000000 by default; raise it in kafka.properties if you trust the producer)"
        )
    return (
        f"the batch at {place} cannot be read: {error.str()}; {cause}. No record of it was "
        f"processed. To continue after it, stop all workers and set the position to the offset "
        f"after its last record: eosframework positions set APP '{partition}=OFFSET'"
    )
