"""The journal: the entries of an application's control topic, newest by key.

The topic has one partition. An open transaction of any producer hides the records after its first
entry, so a reader chooses: `settled` waits until all are decided, `decided` reads up to there, and
`newest` reads past it, for signs of life. Entries are appended in a transaction (`output`) or
outside of any (`write`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import orjson

from eosframework.application.control_entries import (
    entry_output,
    key_of,
    read_entry,
    readable,
    take_entry,
)
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.plain_writes import RecordWriter
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.consumer.settled import decided_ends, settled_ends
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message, Output
from eosframework.txnid import control_topic

FIRST_TAIL_RECORDS = 2000

DECIDED_SECONDS = 2.0
"""Longest time for a healthy owner's commit; later it counts as a leftover."""

SETTLE_SECONDS = 120.0
"""Longest wait for an open transaction: brokers look for expired ones every ten seconds."""


class KafkaJournal:
    """The `Journal` of one application.

    Its methods raise ClusterUnreachable if no broker answers, and ControlTopicDamaged if the newest
    value of a requested key cannot be read.

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
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self.topic = control_topic(application)
        self._partition = TopicPartition(self.topic, 0)
        self._settings = settings
        self._admin = admin
        self._settle_seconds = settle_seconds
        self._writer = RecordWriter(settings)

    def settled(self, keys: Collection[str], since: int | None = None) -> dict[str, Any]:
        """Return committed entries, once all records written before this call are decided.

        The topic grows with every commit until brokers compact it, so keys are looked up from its
        end.

        Args:
            keys: the requested keys.
            since: an offset before which no entry matters; None: there is none.

        Raises:
            ClusterUnreachable: also if a transaction stays undecided.
        """
        return self._newest_to(self._settled_end(), keys, since)

    def settled_under(self, prefix: str) -> dict[str, Any]:
        """Return the committed entries of all keys with a prefix, as `settled`.

        There are none if the topic does not exist.
        """
        return self._all_to(self._settled_end(), prefix) if self._exists() else {}

    def decided(self, keys: Collection[str]) -> dict[str, Any]:
        """Return committed entries before the first undecided transaction; never waits."""
        return self._newest_to(self._decided_end(), keys)

    def decided_under(self, prefix: str) -> dict[str, Any]:
        """Return the committed entries of all keys with a prefix, as `decided`.

        There are none if the topic does not exist.
        """
        return self._all_to(self._decided_end(), prefix) if self._exists() else {}

    def newest(self, keys: Collection[str], since: int = 0) -> dict[str, tuple[int, Any]]:
        """Return the newest entry of each key with its offset, even if it is undecided or aborted.

        It shows that its writer is alive. A writer that hangs during a commit hides later entries
        of others from `settled` and `decided`, but not from this method.

        Args:
            keys: of the entries; deleted ones are left out.
            since: first offset that counts; 0: all count.
        """
        first = since or self._begin()
        newest: dict[str, Message] = {}
        for range_ in _backwards(first, self.written_end()):
            ranges = {self._partition: range_}
            older: dict[str, Message] = {}
            for _, messages in read_ranges(self._settings, ranges, undecided=True):
                older.update({key: m for m in messages if (key := key_of(m)) in keys})
            newest = older | newest
            if len(newest) == len(set(keys)):
                break
        entries = {key: read_entry(message) for key, message in newest.items()}
        return {
            key: (newest[key].offset(), entry[1])
            for key, entry in entries.items()
            if entry is not None and entry[1] is not None
        }

    def written_end(self) -> int:
        """Return the high watermark, past open transactions."""
        return self._admin.high_watermarks([self._partition])[self._partition]

    def leftovers(self, decided_seconds: float = DECIDED_SECONDS) -> set[str]:
        """Return the keys of entries in transactions that stay open.

        Until they are decided no reader may rely on the topic, and the brokers end them only after
        their timeout; an init of their ids ends them at once.

        Args:
            decided_seconds: the longest time for the commit of a healthy owner.
        """
        if (
            decided_ends(self._admin, [self._partition], decided_seconds)[self._partition]
            is not None
        ):
            return set()
        return {*self.read(self._decided_end(), self.written_end(), undecided=True)}

    def output(self, key: str, entry: Any) -> Output:
        """Return the record that writes an entry in a transaction; None deletes it."""
        return entry_output(self.topic, key, entry)

    def write(self, entries: Mapping[str, Any]) -> None:
        """Write entries outside any transaction, and wait until all replicas have them.

        Args:
            entries: by key; None deletes the key.

        Raises:
            ConfigurationError: the topic may not be written.
            ClusterUnreachable: they were not acknowledged within the deadline.
        """
        if entries:
            values = {
                key: None if entry is None else orjson.dumps(entry)
                for key, entry in entries.items()
            }
            self._writer.write(self.topic, values)

    def close(self) -> None:
        """Close the connection of `write`, which opens another one if it is used again."""
        self._writer.close()

    def _exists(self) -> bool:
        return self._admin.describe_topics([self.topic])[self.topic].exists

    def _begin(self) -> int:
        return self._admin.log_bounds([self._partition])[self._partition][0]

    def _decided_end(self) -> int:
        return self._admin.log_bounds([self._partition])[self._partition][1]

    def _settled_end(self) -> int:
        return settled_ends(self._admin, [self._partition], self._settle_seconds)[self._partition]

    def _newest_to(
        self, end: int, keys: Collection[str], since: int | None = None
    ) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for start, stop in _backwards(self._begin() if since is None else since, end):
            entries = self.read(start, stop, keys.__contains__) | entries
            if len(entries) == len(set(keys)):
                break
        return readable(entries)

    def _all_to(self, end: int, prefix: str) -> dict[str, Any]:
        return readable(self.read(self._begin(), end, lambda key: key.startswith(prefix)))

    def read(
        self,
        start: int,
        end: int,
        is_wanted: Callable[[str], bool] = lambda _: True,
        *,
        undecided: bool = False,
    ) -> dict[str, Any]:
        """Return the newest values in a range of the log, or their errors; see `readable`.

        Args:
            start: offset of the range.
            end: the offset after it.
            is_wanted: takes a key.
            undecided: also entries of open and aborted transactions.
        """
        entries: dict[str, Any] = {}
        ranges = {self._partition: (start, end)}
        for _, messages in read_ranges(self._settings, ranges, undecided=undecided):
            for message in messages:
                if is_wanted(key_of(message)):
                    take_entry(entries, message)
        return entries


def _backwards(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield ranges from the end back to `first`, each longer than the one before."""
    records = FIRST_TAIL_RECORDS
    while first < end:
        start = max(first, end - records)
        yield start, end
        end, records = start, 8 * records
