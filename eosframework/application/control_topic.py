"""What an application must remember longer than Kafka keeps its offsets: a compacted topic.

Keys and values are JSON, one fact per key, so that workers that start together cannot undo each
other's:

    application                           {"cluster_id": …, "version": 1}
    topic/TOPIC                           {"topic_id": …, "partitions": 4}
    owner/TOPIC/SUB_TOPOLOGY              {}   it was processed under this one's derived ids
    leased/TOPIC/NUMBER/ID                {"application": …, "sub_topology": …}   …or under this id
    sharing/NUMBER                        {}   derived ids were for so many partitions each
    ids                                   {"from": "leased"}   where ids come from since then
    topology                              what ran last, by `upgrading`
    reset                                 {"begun_at": …} or, once it was through, {"done_at": …}
    committed/SUB_TOPOLOGY/TOPIC/NUMBER   {"topic_id": …}   written in the first transaction

Other owners of progress (relays, backfills) add keys of their own; they are kept as they are.

What an open transaction wrote holds back what was written behind it. Entries that are never written
in a transaction (`WRITTEN_ALONE`) count from the moment they are in the log, so they are read there
as well; for `committed` a reader waits where it matters (`Registry.settled`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from eosframework.application.control_entries import key_of, readable, take_entry
from eosframework.application.needed_access import registry_access
from eosframework.config import Ids, KafkaSettings
from eosframework.errors import StartRefused
from eosframework.kafka.admin.acls import refuse_denied
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.writer import write_records
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.consumer.settled import settled_ends
from eosframework.processing.ports import Output
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId, control_topic

VERSION = 1
APPLICATION = "application"
IDS = "ids"
RESET = "reset"

WRITTEN_ALONE = frozenset(
    {APPLICATION, "topic", "owner", "leased", "sharing", IDS, "topology", RESET}
)
"""Kinds of entries that no transaction holds."""


@dataclass(frozen=True, slots=True)
class RegisteredTopic:
    """A source topic as it was when the application first read it."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Registered:
    """All that the registry holds.

    Args:
        cluster_id: of the cluster it was made on; None: nothing was registered yet.
        owners: by source topic, the sub-topologies that processed it under derived ids, sorted.
        leased: by partition, the leased ids under which it was ever processed and that are not
            released.
        sharing: how many partitions ever shared a derived id; none: one each.
        ids: where the ids of the last start came from.
        committed: partitions that were ever committed, with the id of their topic.
        entries: every entry as it was written.
    """

    cluster_id: str | None = None
    topics: Mapping[str, RegisteredTopic] = field(default_factory=dict[str, RegisteredTopic])
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    committed: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    leased: Mapping[TopicPartition, tuple[TransactionalId, ...]] = field(
        default_factory=dict[TopicPartition, tuple[TransactionalId, ...]]
    )
    sharing: tuple[int, ...] = ()
    ids: Ids = Ids.DERIVED
    entries: Mapping[str, Any] = field(default_factory=dict[str, Any])


def interpret(entries: Mapping[str, Any]) -> Registered:
    """Return what the entries of a registry say."""
    topics: dict[str, RegisteredTopic] = {}
    owners: dict[str, list[str]] = {}
    committed: dict[TopicPartition, str] = {}
    leased: dict[TopicPartition, list[TransactionalId]] = {}
    sharing: list[int] = []
    for key, value in sorted(entries.items()):
        kind, _, rest = key.partition("/")
        if kind == "topic":
            topics[rest] = RegisteredTopic(value["topic_id"], value["partitions"])
        elif kind == "owner":
            topic, _, sub_topology = rest.partition("/")
            owners.setdefault(topic, []).append(sub_topology)
        elif kind == "sharing":
            sharing.append(int(rest))
        elif kind == "committed":
            _, topic, number = rest.split("/")
            committed[TopicPartition(topic, int(number))] = value["topic_id"]
        elif kind == "leased":
            topic, number, id_ = rest.split("/", 2)
            names = value["application"], value["sub_topology"]
            task = TransactionalId(*names, int(number), leased=id_)
            leased.setdefault(TopicPartition(topic, int(number)), []).append(task)
    return Registered(
        cluster_id=entries.get(APPLICATION, {}).get("cluster_id"),
        topics=topics,
        owners={topic: tuple(names) for topic, names in owners.items()},
        committed=committed,
        leased={partition: tuple(tasks) for partition, tasks in leased.items()},
        sharing=tuple(sorted(sharing)),
        ids=Ids(entries.get(IDS, {}).get("from", Ids.DERIVED)),
        entries=dict(entries),
    )


class Registry:
    """Reads and writes the registry topic of one application.

    Args:
        application: its name.
        settings: how to reach the cluster.
        admin: asks the same cluster.
        replication_factor: of the topic, where it has to be created; None: the cluster's default.
    """

    def __init__(
        self,
        application: str,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        *,
        replication_factor: int | None = None,
    ) -> None:
        self.topic = control_topic(application)
        self._partition = TopicPartition(self.topic, 0)
        self._application = application
        self._settings = settings
        self._admin = admin
        self._replication_factor = replication_factor
        self._entries: dict[str, Any] = {}
        self._next_offset = 0
        self._state = Registered()

    @property
    def state(self) -> Registered:
        """What was read by the last `refresh`."""
        return self._state

    def as_topic(self) -> TopicToCreate:
        """Return the topic as `ensure` creates it."""
        return TopicToCreate(self.topic, 1, self._replication_factor, {"cleanup.policy": "compact"})

    def ensure(self) -> bool:
        """Create the topic if it is missing, and return whether it was.

        Raises:
            StartRefused: a topic of this name exists and would forget what it holds.
        """
        # Looked for first: whoever may not create topics may not ask for one that is there, too.
        facts = self._admin.describe_topics([self.topic])[self.topic]
        if not facts.exists and self._admin.create_topics([self.as_topic()]):
            return True
        policy = (facts.values or {}).get("cleanup.policy")
        if policy not in (None, "compact"):
            raise StartRefused(
                f"topic {self.topic!r} has cleanup.policy={policy!r}, so it forgets what the "
                f"application must remember; it is the application's registry: set "
                f"cleanup.policy=compact on it"
            )
        return False

    def require_access(self) -> None:
        """Refuse a principal that may not read and write the topic, which exists.

        Raises:
            StartRefused: names what is missing.
        """
        allowed = self._admin.describe_topics([self.topic])[self.topic].allowed
        refuse_denied([registry_access(self._application)], {("Topic", self.topic): allowed})

    def refresh(self) -> Registered:
        """Read what came since the last time and return everything; waits for no transaction.

        Behind one that is open, only what was written alone is seen.

        Raises:
            ClusterUnreachable: it was not read to its end within the deadline.
            ControlTopicDamaged: an entry cannot be read.
        """
        if not self._admin.describe_topics([self.topic])[self.topic].exists:
            return self._state
        written = self._admin.high_watermarks([self._partition])[self._partition]
        stable = self._read_committed()
        ahead: dict[str, Any] = {}
        if stable < written:
            open_range = {self._partition: (stable, written)}
            for _, messages in read_ranges(self._settings, open_range, undecided=True):
                for message in messages:
                    if key_of(message).partition("/")[0] in WRITTEN_ALONE:
                        take_entry(ahead, message)
        return self._interpreted(ahead)

    def settled(self) -> Registered:
        """Return everything that was committed when this was asked.

        Raises:
            ClusterUnreachable: it was not read to its end within the deadline, or a transaction
                that is open in it did not end within that.
        """
        settled_ends(self._admin, [self._partition], self._settings.request_timeout_seconds)
        self._read_committed()
        return self._interpreted({})

    def _read_committed(self) -> int:
        """Read on to the last stable offset, and return that."""
        first, stable = self._admin.log_bounds([self._partition])[self._partition]
        start = max(first, self._next_offset)
        for _, messages in read_ranges(self._settings, {self._partition: (start, stable)}):
            for message in messages:
                take_entry(self._entries, message)
        self._next_offset = max(stable, self._next_offset)
        return stable

    def _interpreted(self, ahead: Mapping[str, Any]) -> Registered:
        self._state = interpret(readable({**self._entries, **ahead}))
        return self._state

    def write(self, entries: Mapping[str, Any]) -> None:
        """Write entries, outside any transaction, and wait until all replicas have them.

        Args:
            entries: by key; None takes the key out.

        Raises:
            ConfigurationError: the topic may not be written.
            ClusterUnreachable: they were not acknowledged within the deadline.
        """
        if not entries:
            return
        values = {
            key: None if value is None else orjson.dumps(value) for key, value in entries.items()
        }
        write_records(self._settings, self.topic, values)

    def committed_marker(self, sub_topology: str, partition: TopicPartition) -> Output:
        """Return what to write in the first transaction of a partition."""
        topic = self._state.topics.get(partition.topic)
        value = {"topic_id": topic.topic_id if topic else ""}
        return (
            self.topic,
            orjson.dumps(value),
            committed_key(sub_topology, partition).encode(),
            0,
            None,
            None,
            round(time.time() * 1000),
            None,
        )


def topic_key(topic: str) -> str:
    """Return the key of a source topic's facts."""
    return f"topic/{topic}"


def owner_key(topic: str, sub_topology: str) -> str:
    """Return the key that says that a sub-topology processed a topic."""
    return f"owner/{topic}/{sub_topology}"


def leased_key(partition: TopicPartition, id_: str) -> str:
    """Return the key that says that a partition is processed under a leased id."""
    return f"leased/{partition.topic}/{partition.partition}/{id_}"


def sharing_key(partitions_per_producer: int) -> str:
    """Return the key that says that so many partitions shared a derived id."""
    return f"sharing/{partitions_per_producer}"


def committed_key(sub_topology: str, partition: TopicPartition) -> str:
    """Return the key that says that a partition was committed."""
    return f"committed/{sub_topology}/{partition.topic}/{partition.partition}"
