"""The control topic: application state that must outlast the retention of offsets.

It is compacted. Keys and values are JSON, one fact per key, so that workers that start together
cannot undo each other's:

    application                           {"cluster_id": …, "version": 1}
    topic/TOPIC                           {"topic_id": …, "partitions": 4}, and "start" if the topic
                                          was found by a pattern that had run before
    pattern/SOURCE                        {"pattern": …}   of a source, by `matched_topics`
    written/TOPIC                         {"topic_id": …}   a changelog or an output
    ownership                             {"topic_id": …}   the topic of claims
    leases                                {"released": …, "ids": {"SUB_TOPOLOGY/NUMBER": ID}}
    released                              {"at": …}   the last release of a leased id
    topology                              the last topology that ran, by `topology.evolution`
    reset                                 {"begun_at": …} or, once complete, {"done_at": …}
    committed/SUB_TOPOLOGY/TOPIC/NUMBER   {"topic_id": …}   written in the first transaction
    failed/TOPIC/NUMBER                   a record at which a worker stopped, by `failed_records`
    worker/INSTANCE                       a worker's HTTP address, by `worker_addresses`

Other owners of progress (relays, backfills, sinks of Spark) add keys of their own, which are kept.

An open transaction hides the records after its first one from `read_committed` readers. Entries
that are never written in a transaction (`WRITTEN_ALONE`) count from the moment they are in the log,
so they are read there as well; for `committed` a reader waits where it matters
(`ControlTopic.settled`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eosframework.application.compacted_topics import ensure_compacted
from eosframework.application.control_entries import readable
from eosframework.application.journal import KafkaJournal
from eosframework.application.needed_access import control_topic_access, refuse_denied
from eosframework.application.topic_settings import TopicRole, settings_at_creation
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.admin.metadata import TopicDescription, TopicIdentity
from eosframework.kafka.consumer.settled import settled_ends
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Output

VERSION = 1
APPLICATION = "application"
LEASES = "leases"
RELEASED = "released"
RESET = "reset"
WRITTEN = "written"
OWNERSHIP = "ownership"
FAILED = "failed"
WORKER = "worker"

WRITTEN_ALONE = frozenset(
    {
        APPLICATION,
        "topic",
        "pattern",
        WRITTEN,
        LEASES,
        RELEASED,
        "topology",
        RESET,
        OWNERSHIP,
        FAILED,
        WORKER,
    }
)
"""Kinds of entries that are never written in a transaction."""


@dataclass(frozen=True, slots=True)
class ControlState:
    """Content of the control topic.

    Args:
        cluster_id: of the cluster it was created on; None: nothing was written yet.
        topics: source topics by name.
        written: ids of changelogs and outputs, by topic.
        ownership: id of the ownership topic; None: there was none yet.
        committed: partitions that were ever committed, with the id of their topic.
        entries: every entry as it was written.
    """

    cluster_id: str | None = None
    topics: Mapping[str, TopicIdentity] = field(default_factory=dict[str, TopicIdentity])
    written: Mapping[str, str] = field(default_factory=dict[str, str])
    committed: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    ownership: str | None = None
    entries: Mapping[str, Any] = field(default_factory=dict[str, Any])


def interpret(entries: Mapping[str, Any]) -> ControlState:
    """Return the content of a control topic, from its entries."""
    topics: dict[str, TopicIdentity] = {}
    written: dict[str, str] = {}
    committed: dict[TopicPartition, str] = {}
    for key, value in sorted(entries.items()):
        kind, _, rest = key.partition("/")
        if kind == "topic":
            topics[rest] = TopicIdentity(value["topic_id"], value["partitions"])
        elif kind == WRITTEN:
            written[rest] = value["topic_id"]
        elif kind == "committed":
            _, topic, number = rest.split("/")
            committed[TopicPartition(topic, int(number))] = value["topic_id"]
    return ControlState(
        cluster_id=entries.get(APPLICATION, {}).get("cluster_id"),
        topics=topics,
        written=written,
        committed=committed,
        ownership=entries[OWNERSHIP]["topic_id"] if OWNERSHIP in entries else None,
        entries=dict(entries),
    )


def is_reset_unfinished(control: ControlState) -> bool:
    """Return whether a reset was begun and is not complete."""
    return "begun_at" in control.entries.get(RESET, {})


_REMEDY = "It is the application's control topic: delete it, and run `eosframework apply APP`"


class ControlTopic:
    """Reads and writes the control topic of one application.

    Args:
        application: its name.
        settings: how to reach the cluster.
        admin: requests to the same cluster.
        replication_factor: of the topic if it has to be created; None: the cluster's default.
    """

    def __init__(
        self,
        application: str,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        *,
        replication_factor: int | None = None,
    ) -> None:
        self.journal = KafkaJournal(
            application, settings, admin, settle_seconds=settings.request_timeout_seconds
        )
        self.topic = self.journal.topic
        self._partition = TopicPartition(self.topic, 0)
        self._application = application
        self._settings = settings
        self._admin = admin
        self._replication_factor = replication_factor
        self._entries: dict[str, Any] = {}
        self._next_offset = 0
        self._state = ControlState()

    @property
    def state(self) -> ControlState:
        """The result of the last `refresh`."""
        return self._state

    def as_topic(self) -> TopicToCreate:
        """Return the topic as `ensure` creates it."""
        settings = settings_at_creation(TopicRole.CONTROL, self._replication_factor)
        return TopicToCreate(self.topic, 1, self._replication_factor, settings)

    def ensure(self) -> bool:
        """Create the topic if it is missing, and return whether it was.

        Raises:
            StartRefused: a topic of this name exists that would lose or split entries.
        """
        _, made = ensure_compacted(self._admin, self.as_topic(), TopicRole.CONTROL, _REMEDY)
        return made

    def require_access(self) -> None:
        """Refuse a principal that may not read and write the topic, which exists.

        Raises:
            StartRefused: names the missing operations.
        """
        allowed = self._admin.describe_topics([self.topic])[self.topic].allowed
        refuse_denied([control_topic_access(self._application)], {("Topic", self.topic): allowed})

    def refresh(self) -> ControlState:
        """Read new entries and return everything; waits for no transaction.

        After the first open transaction it reads only entries that are never written in one.

        Raises:
            ClusterUnreachable: it was not read to its end within the deadline.
            ControlTopicDamaged: an entry cannot be read.
        """
        if not self._admin.describe_topics([self.topic])[self.topic].exists:
            return self._state
        # 1. the end is read  2. a transaction commits up to it  3. the stable offset is read. In
        # the other order a record that is committed between the two reads would lie beyond the
        # first and be taken for undecided by the second.
        written = self._admin.high_watermarks([self._partition])[self._partition]
        stable = self._read_committed()
        ahead: dict[str, Any] = {}
        if stable < written:
            ahead = self.journal.read(stable, written, _is_written_alone, undecided=True)
        return self._interpreted(ahead)

    def settled(self) -> ControlState:
        """Return everything that is committed, once all records before this call are decided.

        Raises:
            ClusterUnreachable: it was not read to its end within the deadline, or an open
                transaction did not end within that.
        """
        settled_ends(self._admin, [self._partition], self._settings.request_timeout_seconds)
        self._read_committed()
        return self._interpreted({})

    def _read_committed(self) -> int:
        """Read up to the last stable offset, and return that offset."""
        first, stable = self._admin.log_bounds([self._partition])[self._partition]
        start = max(first, self._next_offset)
        self._entries.update(self.journal.read(start, stable))
        self._next_offset = max(stable, self._next_offset)
        return stable

    def _interpreted(self, ahead: Mapping[str, Any]) -> ControlState:
        self._state = interpret(readable({**self._entries, **ahead}))
        return self._state

    def write(self, entries: Mapping[str, Any]) -> None:
        """Write entries outside any transaction; see `KafkaJournal.write`."""
        self.journal.write(entries)

    def close(self) -> None:
        """Close the connection of `write`; see `KafkaJournal.close`."""
        self.journal.close()

    def committed_marker(self, sub_topology: str, partition: TopicPartition) -> Output:
        """Return the record for the first transaction of a partition."""
        topic = self._state.topics.get(partition.topic)
        entry = {"topic_id": topic.topic_id if topic else ""}
        return self.journal.output(committed_key(sub_topology, partition), entry)


def _is_written_alone(key: str) -> bool:
    return key.partition("/")[0] in WRITTEN_ALONE


def topic_key(topic: str) -> str:
    """Return the key of a source topic's entry."""
    return f"topic/{topic}"


def topic_entry(found: TopicDescription) -> dict[str, object]:
    """Return the entry of a topic as it is now."""
    return {"topic_id": found.topic_id, "partitions": found.partitions}


def written_entries(topic_ids: Mapping[str, str]) -> dict[str, object]:
    """Return the entries of topics that the application writes."""
    return {f"{WRITTEN}/{topic}": {"topic_id": id_} for topic, id_ in topic_ids.items()}


def committed_key(sub_topology: str, partition: TopicPartition) -> str:
    """Return the key that records that a partition was committed."""
    return f"committed/{sub_topology}/{partition.topic}/{partition.partition}"
