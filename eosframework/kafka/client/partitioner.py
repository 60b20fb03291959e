"""Partitions: Java's default partitioner (murmur2), and conversion from and to confluent_kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import cast

from confluent_kafka import OFFSET_INVALID
from confluent_kafka import TopicPartition as KafkaPartition

from eosframework.records import Position, TopicPartition


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Java's default partitioner chooses for a key.

    Other producers may choose differently; librdkafka's own default does.

    Args:
        key: encoded.
        partitions: of the topic.
    """
    return _hash(key) % partitions


def same_partition(partitions: Mapping[str, int]) -> Callable[[str, bytes, bytes], bool]:
    """Return a function that compares the partitions of two encoded keys of a topic.

    Args:
        partitions: number of partitions by topic; of others the keys count as apart.
    """

    def same(topic: str, one: bytes, other: bytes) -> bool:
        count = partitions.get(topic, 0)
        return count == 1 or (count > 1 and partition_of(one, count) == partition_of(other, count))

    return same


@lru_cache(maxsize=2**15)
def _hash(key: bytes) -> int:
    """Return the hash of a key; it is computed in Python, and groups have the same keys again."""
    return _murmur2()(key) & 0x7FFFFFFF


@cache
def _murmur2() -> Callable[[bytes], int]:
    """Return kafka-python's hash; the package is an eighth of all that a worker would import."""
    from kafka.partitioner.default import murmur2  # pyright: ignore[reportUnknownVariableType]

    return cast("Callable[[bytes], int]", murmur2)


def from_kafka(partition: KafkaPartition) -> TopicPartition:
    """Return a partition without its offset."""
    return TopicPartition(partition.topic, partition.partition)


def to_kafka(position: Position) -> KafkaPartition:
    """Return a position with its metadata."""
    offset = OFFSET_INVALID if position.offset is None else position.offset
    return KafkaPartition(position.topic, position.partition, offset, position.metadata)


def committed_position(partition: KafkaPartition) -> Position:
    """Return one answer of `committed`; its offset is None if nothing was committed."""
    offset = partition.offset if partition.offset >= 0 else None
    return Position(partition.topic, partition.partition, offset, partition.metadata or "")


def partitions_to_kafka(partitions: Sequence[TopicPartition]) -> list[KafkaPartition]:
    """Return partitions without offsets."""
    return [KafkaPartition(topic, number) for topic, number in partitions]
