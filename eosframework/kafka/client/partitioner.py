"""The default partitioner of Java's clients and of the worker's producers: murmur2."""

from __future__ import annotations

from kafka.partitioner.default import murmur2  # pyright: ignore[reportUnknownVariableType]


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's default partitioner chooses for a key.

    Other producers may choose differently; librdkafka's own default does.

    Args:
        key: encoded.
        partitions: of the topic.
    """
    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions
