"""Reads of changelog topics: the ranges that local stores lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import TopicPartition as KafkaPartition

from eosframework.config import KafkaSettings
from eosframework.engine.stores.state_ports import Bounds, ChangelogReading
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import assigned_consumer, consume
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message


class KafkaChangelogs:
    """The changelog topics of an application.

    Args:
        settings: how to reach the cluster.
        admin: returns the bounds of logs.
    """

    def __init__(self, settings: KafkaSettings, admin: ClusterAdmin) -> None:
        self._settings = settings
        self._admin = admin

    def bounds(self, partitions: Sequence[TopicPartition]) -> Bounds:
        """Return the first offset and the last stable offset of each changelog.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        return self._admin.log_bounds(partitions)

    def written_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermark of each changelog.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        return self._admin.high_watermarks(partitions)

    def open(self, ranges: Bounds) -> ChangelogReading:
        """Begin to read ranges: from the first offset to before the second."""
        return _Reading(self._settings, ranges)


class _Reading:
    def __init__(self, settings: KafkaSettings, ranges: Bounds) -> None:
        self._ends = {partition: end for partition, (_, end) in ranges.items()}
        self._read_to = {partition: start for partition, (start, _) in ranges.items()}
        self._consumer = assigned_consumer(settings, self._read_to)

    def read(self, seconds: float) -> Mapping[TopicPartition, Sequence[Message]]:
        batches, read_to = consume(self._consumer, seconds)
        kept: dict[TopicPartition, Sequence[Message]] = {}
        for partition, messages in batches.items():
            end = self._ends.get(partition, 0)
            kept[partition] = [m for m in messages if m.offset() < end]
        for partition, offset in read_to.items():
            if partition in self._ends:
                self._read_to[partition] = offset
                if offset >= self._ends[partition]:
                    del self._ends[partition]
                    self._consumer.incremental_unassign([KafkaPartition(*partition)])
        return kept

    def read_to(self, partition: TopicPartition) -> int:
        return self._read_to[partition]

    def close(self) -> None:
        self._consumer.close()
