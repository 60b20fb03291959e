"""The default partitioner of Java's clients and of the worker's producers: murmur2."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's default partitioner chooses for a key.

    Other producers may choose differently; librdkafka's own default does.

    Args:
        key: encoded.
        partitions: of the topic.
    """
    return (_murmur2()(key) & 0x7FFFFFFF) % partitions


@cache
def _murmur2() -> Callable[[bytes], int]:
    """Return kafka-python's hash; the package is an eighth of all that a worker would import."""
    from kafka.partitioner.default import murmur2  # pyright: ignore[reportUnknownVariableType]

    return cast("Callable[[bytes], int]", murmur2)
