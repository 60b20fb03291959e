"""Entries of a control topic that change with transactions: positions of relays and backfills.

The topic has one partition. An open transaction of any producer hides the records after its first
entry, so a reader chooses to wait until all are decided, or to read up to there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from eosframework.application.control_entries import (
    entry_output,
    key_of,
    read_entry,
    readable,
    take_entry,
)
from eosframework.application.control_topic import ControlTopic
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.consumer.settled import decided_ends, settled_ends
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message, Output
from eosframework.txnid import control_topic

FIRST_TAIL_RECORDS = 2000


class ControlLog:
    """Reads and writes entries of an application's control topic, which exists.

    Args:
        application: the owner of the topic.
        settings: how to reach the cluster.
        admin: reads offsets of the same cluster.
        settle_seconds: the longest wait for an undecided transaction.
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
        """Return whether the application has a control topic."""
        return self._admin.describe_topics([self.topic])[self.topic].exists

    def settled(
        self, prefix: str, keys: Collection[str] | None = None, since: int | None = None
    ) -> dict[str, Any]:
        """Return committed entries, once all records written before this call are decided.

        The topic grows with every commit until brokers compact it, so single keys are looked up
        from its end.

        Args:
            prefix: of the keys.
            keys: the requested keys; None: all.
            since: an offset before which no entry matters; None: there is none.

        Raises:
            ClusterUnreachable: no broker answered, or a transaction stays undecided.
        """
        end = settled_ends(self._admin, [self._partition], self._settle_seconds)[self._partition]
        return self._read_to(end, prefix, keys, since)

    def decided(self, prefix: str, keys: Collection[str] | None = None) -> dict[str, Any]:
        """Return committed entries before the first undecided transaction; never waits.

        Raises:
            ClusterUnreachable: no broker answered.
        """
        end = self._admin.log_bounds([self._partition])[self._partition][1]
        return self._read_to(end, prefix, keys)

    def written_end(self) -> int:
        """Return the high watermark.

        Raises:
            ClusterUnreachable: no broker answered.
        """
        return self._admin.high_watermarks([self._partition])[self._partition]

    def is_settled(self, within_seconds: float) -> bool:
        """Return whether all records written before this call are decided within that time.

        Raises:
            ClusterUnreachable: no broker answered.
        """
        ends = decided_ends(self._admin, [self._partition], within_seconds)
        return ends[self._partition] is not None

    def undecided(self) -> set[str]:
        """Return the keys of entries from the first undecided transaction on.

        Raises:
            ClusterUnreachable: no broker answered.
        """
        partition, end = self._partition, self.written_end()
        start = self._admin.log_bounds([partition])[partition][1]
        runs = read_ranges(self._settings, {partition: (start, end)}, undecided=True)
        return {key_of(message) for _, run in runs for message in run}

    def newest(self, key: str, since: int = 0) -> tuple[int, Any] | None:
        """Return the newest entry of a key with its offset; see `newest_of`."""
        return self.newest_of([key], since).get(key)

    def newest_of(self, keys: Collection[str], since: int = 0) -> dict[str, tuple[int, Any]]:
        """Return the newest entry of each key with its offset, even if it is undecided or aborted.

        It shows that its writer is alive.

        Args:
            keys: of the entries.
            since: first offset that counts; 0: all count.

        Raises:
            ClusterUnreachable: no broker answered.
            ControlTopicDamaged: the newest value of a key cannot be read.
        """
        end = self.written_end()
        first = since or self._admin.log_bounds([self._partition])[self._partition][0]
        newest: dict[str, Message] = {}
        for range_ in _backwards(first, end):
            ranges = {self._partition: range_}
            older: dict[str, Message] = {}
            for _, messages in read_ranges(self._settings, ranges, undecided=True):
                older.update({key: m for m in messages if (key := key_of(m)) in keys})
            newest = older | newest
            if len(newest) == len(set(keys)):
                break
        entries = {key: read_entry(message) for key, message in newest.items()}
        return {
            key: (newest[key].offset(), None if entry is None else entry[1])
            for key, entry in entries.items()
        }

    def output(self, key: str, entry: Any) -> Output:
        """Return the record that writes an entry; None deletes it."""
        return entry_output(self.topic, key, entry)

    def write(self, entries: Mapping[str, Any]) -> None:
        """Write entries outside any transaction; see `ControlTopic.write`."""
        ControlTopic(self._application, self._settings, self._admin).write(entries)

    def _read_to(
        self, end: int, prefix: str, keys: Collection[str] | None, since: int | None = None
    ) -> dict[str, Any]:
        first = since
        if first is None:
            first = self._admin.log_bounds([self._partition])[self._partition][0]
        if keys is None:
            return readable(self._entries(first, end, prefix))
        entries: dict[str, Any] = {}
        for start, stop in _backwards(first, end):
            entries = self._entries(start, stop, prefix) | entries
            if all(key in entries for key in keys):
                break
        return readable({key: value for key, value in entries.items() if key in keys})

    def _entries(self, start: int, end: int, prefix: str) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for _, messages in read_ranges(self._settings, {self._partition: (start, end)}):
            for message in messages:
                if key_of(message).startswith(prefix):
                    take_entry(entries, message)
        return entries


def _backwards(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield ranges from the end back to `first`, each longer than the one before."""
    records = FIRST_TAIL_RECORDS
    while first < end:
        start = max(first, end - records)
        yield start, end
        end, records = start, 8 * records
