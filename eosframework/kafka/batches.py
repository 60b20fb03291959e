"""Messages as librdkafka gives them, grouped by partition."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, cast

from confluent_kafka import KafkaError, Message

from eosframework.processing import ports
from eosframework.records import TopicPartition

error_of: Callable[[Message], KafkaError | None] = Message.error
"""For `map`, which takes no step of Python for each message."""

_topic_of: Callable[[Message], str | None] = Message.topic
_partition_of: Callable[[Message], int | None] = Message.partition


def by_partition(messages: list[Message]) -> dict[TopicPartition, list[ports.Message]]:
    """Group messages without a step of Python per message: they come in runs per partition."""
    grouped: dict[TopicPartition, list[Any]] = {}
    for topic, of_topic in groupby(messages, _topic_of):
        for partition, run in groupby(of_topic, _partition_of):
            grouped.setdefault(cast("TopicPartition", (topic, partition)), []).extend(run)
    return {TopicPartition(*partition): run for partition, run in grouped.items()}
