"""Where Kafka's own clients, and the worker's producers, put a key: murmur2."""

from __future__ import annotations

from typing import cast

from kafka.partitioner.default import murmur2  # pyright: ignore[reportUnknownVariableType]


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key, as Java's default partitioner chooses it.

    A producer may choose otherwise; librdkafka's own default does.

    Args:
        key: encoded.
        partitions: of the topic.
    """
    return (cast(int, murmur2(key)) & 0x7FFFFFFF) % partitions
