"""The ownership topic: the transactional ids that may write for each partition.

It is compacted, has one partition, and is never written in a transaction, so no open transaction
hides its end. `apply` or the first start creates it, and the control topic has its id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from eosframework.application.compacted_topics import ensure_compacted, refuse_unfit_entries
from eosframework.application.context import ApplicationContext
from eosframework.application.control_topic import OWNERSHIP, ControlState
from eosframework.application.topic_settings import (
    READ_AGAIN_SECONDS,
    TopicRole,
    settings_at_creation,
)
from eosframework.config import KafkaSettings
from eosframework.errors import PositionLost, Retriable, RunError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.kafka.client.plain_writes import RecordWriter
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.records import TopicPartition
from eosframework.transactions.ownership import Stored, parse
from eosframework.txnid import ownership_topic

_REMEDY = (
    "Its entries say which transactional ids may write. Stop all workers of the application, "
    "delete the topic, and run `eosframework apply APP`"
)

SETTINGS = {
    "max.compaction.lag.ms": str(round(READ_AGAIN_SECONDS * 1000)),
    "min.compaction.lag.ms": "0",
    "segment.bytes": str(2**20),
}
"""Further settings at creation. With the time for which removals are kept they bound the records
that a start reads to those of 40 minutes: a crash loop adds an entry and a removal per task each
time. The active segment is never compacted: it is small, and rolled after the longest lag."""


class OwnershipTopic:
    """Reads and writes the ownership topic of one application; see `OwnershipLog`.

    Args:
        application: its name.
        settings: how to reach the cluster.
        admin: requests to the same cluster.
        recorded_id: returns the topic's id in the control topic, or None after a reset; None: it is
            not checked.
        replication_factor: of the topic if it has to be created; None: the cluster's default.
    """

    def __init__(
        self,
        application: str,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        *,
        recorded_id: Callable[[], str | None] | None = None,
        replication_factor: int | None = None,
    ) -> None:
        self.topic = ownership_topic(application)
        self._partition = TopicPartition(self.topic, 0)
        self._settings = settings
        self._writer = RecordWriter(settings)
        self._admin = admin
        self._recorded_id = recorded_id
        self._replication_factor = replication_factor
        self._stored: dict[bytes, tuple[int, bytes]] = {}
        self._next_offset: int | None = None
        self._read_at = 0.0

    def as_topic(self) -> TopicToCreate:
        """Return the topic as `ensure` creates it."""
        stated = settings_at_creation(TopicRole.OWNERSHIP, self._replication_factor)
        return TopicToCreate(self.topic, 1, self._replication_factor, {**stated, **SETTINGS})

    def ensure(self) -> str:
        """Create the topic if it is missing, and return its id.

        Raises:
            StartRefused: a topic of this name exists that would lose or split entries.
        """
        facts, _ = ensure_compacted(self._admin, self.as_topic(), TopicRole.OWNERSHIP, _REMEDY)
        return facts.topic_id or ""

    def found_id(self) -> str | None:
        """Return the topic's id as it is now; None: there is none."""
        found = self._admin.identities([self.topic]).get(self.topic)
        return None if found is None else found.topic_id

    def prepare(self) -> None:
        """Connect for the first `write`, which would take half a second longer otherwise."""
        self._writer.prepare()

    def close(self) -> None:
        """Close the connection of `write`."""
        self._writer.close()

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        """Write records, and wait until all in-sync replicas have them; None removes a record.

        Raises:
            ConfigurationError: the topic may not be written.
            ClusterUnreachable: they were not acknowledged within the deadline.
        """
        if values:
            named = {key.decode(): value for key, value in values.items()}
            self._writer.write(self.topic, named)

    def read(self) -> Stored:
        """Return the records that are not removed, up to the end of the topic at this call.

        Raises:
            RunError: the topic is missing, or another one than the control topic has recorded.
            Retriable: reading took so long that brokers may have dropped removals meanwhile.
            ClusterUnreachable: it was not read to its end within the deadline.
        """
        facts = self._admin.describe_topics([self.topic])[self.topic]
        expected = facts.topic_id if self._recorded_id is None else self._recorded_id()
        if not facts.exists or expected != facts.topic_id:
            raise RunError(
                f"ownership topic {self.topic!r} was deleted or made anew while this worker ran "
                f"(found id {facts.topic_id if facts.exists else 'none'}, expected "
                f"{expected}): the ids that may still write are unknown. If the application was "
                f"reset, start this worker again. Otherwise: {_NEXT_STEP}"
            )
        began_at = time.time()
        if began_at - self._read_at > READ_AGAIN_SECONDS:
            self._forget()
        end = self._admin.high_watermarks([self._partition])[self._partition]
        if self._next_offset is None or self._next_offset > end:
            self._forget()
            self._next_offset = self._admin.log_bounds([self._partition])[self._partition][0]
        self._read_to(end)
        if time.time() - began_at > READ_AGAIN_SECONDS:
            self._forget()
            raise Retriable(f"topic {self.topic!r} was not read in time; it is read again")
        self._read_at = began_at
        return self._stored

    def ids(self) -> set[str]:
        """Return the ids of all entries; empty if the topic does not exist.

        Raises:
            RunError: an entry cannot be read.
            ClusterUnreachable: it was not read to its end within the deadline.
        """
        if not self._admin.describe_topics([self.topic])[self.topic].exists:
            return set()
        return {entry.claim.transactional_id for entry in parse(self.read(), self.topic)}

    def _read_to(self, end: int) -> None:
        assert self._next_offset is not None
        ranges = {self._partition: (self._next_offset, end)}
        try:
            for _, messages in read_ranges(self._settings, ranges, undecided=True):
                for message in messages:
                    key, value = message.key(), message.value()
                    self._next_offset = message.offset() + 1
                    if key is None:
                        continue
                    if value is None:
                        self._stored.pop(key, None)
                    else:
                        self._stored[key] = (message.offset(), value)
        except PositionLost as error:
            self._forget()
            raise Retriable(str(error)) from error
        self._next_offset = max(end, self._next_offset)

    def _forget(self) -> None:
        self._stored.clear()
        self._next_offset = None


def ownership_of(context: ApplicationContext) -> OwnershipTopic:
    """Return the ownership topic of an application, checked against the control topic."""
    return OwnershipTopic(
        context.graph.application,
        context.settings.kafka,
        context.admin,
        recorded_id=lambda: context.control_topic.state.ownership,
        replication_factor=context.settings.topics.replication_factor,
    )


_NEXT_STEP = (
    "Stop all workers of the application, wait for worker.transaction_timeout_seconds, after which "
    "the brokers have ended their transactions, and run `eosframework apply APP`"
)


def refuse_lost_ownership(control: ControlState, topic_id: str | None, topic: str) -> None:
    """Refuse an ownership topic that was deleted or restored: it lacks ids that may still write.

    Args:
        control: the content of the control topic.
        topic_id: of the ownership topic as it is now; None: there is none.
        topic: its name.

    Raises:
        StartRefused: says what to do.
    """
    if control.ownership not in (None, topic_id):
        raise StartRefused(
            f"ownership topic {topic!r} was deleted or made anew (found id {topic_id or 'none'}, "
            f"expected {control.ownership}): the ids that may still write are unknown. {_NEXT_STEP}"
        )


def refuse_unfit_ownership(topic: str, found: TopicDescription) -> None:
    """Refuse an ownership topic that would lose or split entries.

    Raises:
        StartRefused: names the found and the expected value.
    """
    refuse_unfit_entries(topic, TopicRole.OWNERSHIP, found, _REMEDY)


def ownership_entry(topic_id: str) -> dict[str, object]:
    """Return the control topic's entry of the ownership topic."""
    return {OWNERSHIP: {"topic_id": topic_id}}
