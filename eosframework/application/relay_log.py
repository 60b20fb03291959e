"""An outbox relay's data in Kafka: its positions in the control topic, and sent messages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from eosframework.application.control_log import ControlLog
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.postgres.outbox.relay_position import (
    ID_HEADER,
    RelayPosition,
    SentMessages,
    position_key,
)
from eosframework.records import TopicPartition, partitions_of
from eosframework.transactions.ports import Message, Output

_PREFIX = position_key(0).rpartition("/")[0] + "/"


class RelayPositionLog:
    """The `PositionLog` in a relay's control topic.

    Args:
        name: the relay's.
        settings: how to reach the cluster.
        admin: reads offsets of the same cluster.
        shards: as configured.
        settle_seconds: the longest wait for an undecided transaction.
    """

    def __init__(
        self,
        name: str,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        *,
        shards: int,
        settle_seconds: float,
    ) -> None:
        self._log = ControlLog(name, settings, admin, settle_seconds=settle_seconds)
        self._keys = {position_key(shard): shard for shard in range(shards)}

    def read(self) -> Mapping[int, RelayPosition]:
        """Return the committed position of each shard that has one.

        Raises:
            ClusterUnreachable: no broker answered, or a transaction stays undecided.
        """
        return self._positions(self._log.settled(_PREFIX, self._keys))

    def decided(self) -> Mapping[int, RelayPosition]:
        """Return committed positions before the first undecided transaction; never waits.

        Raises:
            ClusterUnreachable: no broker answered.
        """
        return self._positions(self._log.decided(_PREFIX, self._keys))

    def output(self, shard: int, position: RelayPosition | None) -> Output:
        """Return the record that writes a position, or deletes it."""
        entry = None if position is None else position.to_entry()
        return self._log.output(position_key(shard), entry)

    def _positions(self, entries: Mapping[str, Any]) -> dict[int, RelayPosition]:
        return {self._keys[key]: RelayPosition.from_entry(entries[key]) for key in entries}


class KafkaSentLog:
    """The `SentLog` of a cluster."""

    def __init__(self, settings: KafkaSettings, admin: ClusterAdmin) -> None:
        self._settings = settings
        self._admin = admin

    def sent(self, since_by_topic: Mapping[str, int]) -> SentMessages:
        """Return the message ids in each topic from a time on.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        facts = self._admin.describe_topics(since_by_topic)
        policies = self._admin.topic_setting(since_by_topic, "cleanup.policy")
        ids: set[str] = set()
        removed_before: dict[str, int] = {}
        for topic, since in since_by_topic.items():
            count = facts[topic].partitions if facts[topic].exists else 0
            partitions = partitions_of({topic: count})
            starts = self._admin.offsets_at(partitions, since)
            bounds = self._admin.log_bounds(partitions)
            for partition in partitions:
                start = starts[partition]
                first, end = bounds[partition]
                oldest = None
                for message in self._messages(partition, end if start is None else start, end):
                    ids.update(_ids(message))
                    oldest = message.timestamp()[1] if oldest is None else oldest
                if first > 0 and (start == first or first == end):
                    moment = round(time.time() * 1000) if oldest is None else oldest
                    removed_before[topic] = max(moment, removed_before.get(topic, 0))
            if "compact" in (policies.get(topic) or ""):
                removed_before[topic] = round(time.time() * 1000)
        return SentMessages(frozenset(ids), removed_before)

    def _messages(self, partition: TopicPartition, start: int, end: int) -> Iterator[Message]:
        for _, messages in read_ranges(self._settings, {partition: (start, end)}):
            yield from messages


def _ids(message: Any) -> list[str]:
    return [
        value.decode(errors="replace")
        for name, value in message.headers() or ()
        if name == ID_HEADER and value is not None
    ]
