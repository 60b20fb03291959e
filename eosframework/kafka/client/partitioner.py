"""The default partitioner of Java's clients and of the worker's producers: murmur2."""

from __future__ import annotations

from typing import cast

from kafka.partitioner.default import murmur2  # pyright: ignore[reportUnknownVariableType]


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's default partitioner chooses for a key.

    Other producers may choose differently; librdkafka's own default does.

    Args:
        key: encoded.
        partitions: of the topic.
    """
    return (cast(int, murmur2(key)) & 0x7FFFFFFF) % partitions
