"""Entries of a registry topic that change with transactions: positions of relays, of backfills.

The topic has one partition. An open transaction holds back what lies behind its first entry there,
whoever wrote that; so a reader says whether it waits until all is decided, or takes what is.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import orjson

from eosframework.application.control_entries import key_of, read_entry, readable, take_entry
from eosframework.application.control_topic import Registry
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.consumer.settled import decided_ends, settled_ends
from eosframework.processing.ports import Output
from eosframework.records import TopicPartition
from eosframework.txnid import control_topic

FIRST_TAIL_RECORDS = 2000


class RegistryLog:
    """Reads and writes entries of an application's registry topic, which exists.

    Args:
        application: whose registry.
        settings: how to reach the cluster.
        admin: asks the same cluster.
        settle_seconds: how long a transaction in doubt is waited for.
    """

    def __init__(
        self,
        application: str,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        *,
        settle_seconds: float,
    ) -> None:
        self.topic = control_topic(application)
        self._partition = TopicPartition(self.topic, 0)
        self._application = application
        self._settings = settings
        self._admin = admin
        self._settle_seconds = settle_seconds

    def exists(self) -> bool:
        """Tell whether the application has a registry."""
        return self._admin.describe_topics([self.topic])[self.topic].exists

    def settled(self, prefix: str, keys: Collection[str] | None = None) -> dict[str, Any]:
        """Return what is committed, once all is decided that was written when this was asked.

        The topic grows with every commit until brokers compact it, so of single keys its end is
        read first.

        Args:
            prefix: of the keys.
            keys: those of them that are wanted; None: all.

        Raises:
            ClusterUnreachable: nobody answered, or a transaction stays in doubt.
        """
        end = settled_ends(self._admin, [self._partition], self._settle_seconds)[self._partition]
        return self._read_to(end, prefix, keys)

    def decided(self, prefix: str, keys: Collection[str] | None = None) -> dict[str, Any]:
        """Return what is committed and not behind a transaction in doubt; waits for nothing.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        end = self._admin.log_bounds([self._partition])[self._partition][1]
        return self._read_to(end, prefix, keys)

    def written_end(self) -> int:
        """Return the offset behind everything that is written, decided or not.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        return self._admin.high_watermarks([self._partition])[self._partition]

    def is_settled(self, within_seconds: float) -> bool:
        """Tell whether all that is written now is decided within so many seconds.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        ends = decided_ends(self._admin, [self._partition], within_seconds)
        return ends[self._partition] is not None

    def undecided(self) -> set[str]:
        """Return the keys of entries at or behind the first transaction that is not decided.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        partition, end = self._partition, self.written_end()
        start = self._admin.log_bounds([partition])[partition][1]
        runs = read_ranges(self._settings, {partition: (start, end)}, undecided=True)
        return {key_of(message) for _, run in runs for message in run}

    def newest(self, key: str, since: int = 0) -> tuple[int, Any] | None:
        """Return the newest entry of a key with its offset, whatever becomes of its transaction.

        It is a sign that its writer lives, and of nothing else.

        Args:
            key: of the entry.
            since: first offset that is looked at.

        Raises:
            ClusterUnreachable: nobody answered.
        """
        partition, end = self._partition, self.written_end()
        first = self._admin.log_bounds([partition])[partition][0]
        start = max(first, since, end - FIRST_TAIL_RECORDS)
        found: tuple[int, Any] | None = None
        for _, messages in read_ranges(self._settings, {partition: (start, end)}, undecided=True):
            for message in messages:
                if message.key() == key.encode():
                    entry = read_entry(message)
                    found = message.offset(), None if entry is None else entry[1]
        return found

    def output(self, key: str, entry: Any) -> Output:
        """Return what to produce so that an entry counts; of None, that there is none."""
        value = None if entry is None else orjson.dumps(entry)
        return (self.topic, value, key.encode(), 0, None, None, round(time.time() * 1000), None)

    def write(self, entries: Mapping[str, Any]) -> None:
        """Write entries outside any transaction; see `Registry.write`."""
        Registry(self._application, self._settings, self._admin).write(entries)

    def _read_to(self, end: int, prefix: str, keys: Collection[str] | None) -> dict[str, Any]:
        first = self._admin.log_bounds([self._partition])[self._partition][0]
        tail = FIRST_TAIL_RECORDS
        while True:
            start = first if keys is None else max(first, end - tail)
            entries = self._entries(start, end, prefix)
            if start == first or all(key in entries for key in keys or ()):
                wanted = entries if keys is None else keys
                return readable({k: v for k, v in entries.items() if k in wanted})
            tail *= 8

    def _entries(self, start: int, end: int, prefix: str) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for _, messages in read_ranges(self._settings, {self._partition: (start, end)}):
            for message in messages:
                if key_of(message).startswith(prefix):
                    take_entry(entries, message)
        return entries
