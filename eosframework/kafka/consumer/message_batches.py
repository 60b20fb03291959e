"""Messages as librdkafka gives them, grouped by partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from confluent_kafka import KafkaError, Message

from eosframework.processing import ports
from eosframework.records import TopicPartition

error_of: Callable[[Message], KafkaError | None] = Message.error
"""For `map`, which takes no step of Python for each message."""

SAMPLED = 8
"""Of so many messages of a partition, at most, the sizes are looked at."""

_size_of: Callable[[Any], int] = Message.__len__
_topic_of: Callable[[Message], str | None] = Message.topic
_partition_of: Callable[[Message], int | None] = Message.partition


def by_partition(messages: list[Message]) -> dict[TopicPartition, list[ports.Message]]:
    """Group messages without a step of Python per message: they come in runs per partition."""
    grouped: dict[TopicPartition, list[Any]] = {}
    for topic, of_topic in groupby(messages, _topic_of):
        for partition, run in groupby(of_topic, _partition_of):
            grouped.setdefault(cast("TopicPartition", (topic, partition)), []).extend(run)
    return {TopicPartition(*partition): run for partition, run in grouped.items()}


def sizes_of(
    grouped: Mapping[TopicPartition, Sequence[ports.Message]],
) -> dict[TopicPartition, int]:
    """Estimate how large the values of messages are, in bytes, by partition.

    To ask each message takes 35 to 100 ns, one to two percent of what a record takes in all.
    """
    return {partition: _size(messages) for partition, messages in grouped.items()}


def _size(messages: Sequence[ports.Message]) -> int:
    sample = messages[:: len(messages) // SAMPLED + 1]
    return sum(map(_size_of, sample)) * len(messages) // len(sample)
