"""The input of the checks: topology, settings and one snapshot of the cluster; and fixes for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eosframework.application.event_times import EventTimes
from eosframework.application.partitioner_checks import KeySample
from eosframework.application.start_checks import Facts
from eosframework.config import Settings
from eosframework.kafka.admin.metadata import GroupDescription, TopicDescription, Values
from eosframework.kafka.inspect.coordinators import TransactionListing
from eosframework.kafka.inspect.formats import CONSUMER_OFFSETS, TRANSACTION_STATE
from eosframework.kafka.inspect.hanging import OpenTransaction
from eosframework.kafka.inspect.probes import Clock, MetadataLevels
from eosframework.operations.doctor.findings import Seen
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import TransactionalId, control_topic

WEEK_MS = 7 * 24 * 3_600_000

COORDINATION = (TRANSACTION_STATE, CONSUMER_OFFSETS)
"""The brokers' topics for transactions and offsets."""


@dataclass(frozen=True, slots=True)
class CoordinatorAnswers:
    """Snapshot parts from kafka-python.

    Args:
        levels: of the brokers' feature metadata.version.
        open_transactions: in the application's topics.
        open_offsets: in the partition with the offsets of the application's group.
        ids: transactional ids with the application's prefix, and its leased ones.
        lacking: by a transactional id of each sub-topology, the missing permission.
    """

    levels: Seen[MetadataLevels]
    clock: Seen[Clock]
    open_transactions: Seen[tuple[OpenTransaction, ...]]
    open_offsets: Seen[tuple[OpenTransaction, ...]]
    ids: Seen[tuple[TransactionListing, ...]]
    lacking: Mapping[str, Seen[str]]


@dataclass(frozen=True, slots=True)
class Snapshot(CoordinatorAnswers):
    """One snapshot.

    Args:
        topics: the application's topics, the control topic and the brokers' internal topics.
        brokers: their settings by id; unseen if one of them did not answer.
        producer: effective properties of a task's producer.
        consumer: effective properties of the worker's consumer.
        refused_properties: reasons of librdkafka for rejecting properties.
        facts: input of the start checks.
        event_times: by source; a source without records is missing.
        leases: the tasks of leased ids, including those that the next start would lease, by id;
            None: ids are derived.
        keys: a sample of each topic whose keys are co-partitioned with others.
        tables_group: group of the table writers; None: there are no table sinks.
        database_seconds: time of a question to the database that decides transactions; None: none
            does.
        some_brokers: settings of the brokers that answered, where not all did.
    """

    taken_at: datetime
    graph: Graph
    settings: Settings
    topics: Mapping[str, Seen[TopicDescription]]
    brokers: Seen[Mapping[int, Values]]
    producer: Mapping[str, Any]
    consumer: Mapping[str, Any]
    refused_properties: tuple[str, ...]
    allowed_on_cluster: Seen[frozenset[str] | None]
    group: Seen[GroupDescription]
    facts: Seen[Facts]
    event_times: Mapping[str, Seen[EventTimes | None]]
    leases: Seen[Mapping[str, TransactionalId] | None]
    keys: Seen[Mapping[str, KeySample]]
    some_brokers: Mapping[int, Values] = field(default_factory=dict[int, Values])
    tables_group: Seen[GroupDescription] | None = None
    database_seconds: Seen[float] | None = None

    @property
    def sources(self) -> list[str]:
        """Topics that the application reads."""
        return self.graph.source_topics

    @property
    def sinks(self) -> list[str]:
        """Topics that the application writes and names."""
        return self.graph.sink_topics

    @property
    def persisted(self) -> list[str]:
        """Topics of table sinks; inputs or internal topics."""
        return self.graph.table_sink_topics

    @property
    def registry(self) -> str:
        """The application's control topic."""
        return control_topic(self.graph.application)

    @property
    def servers(self) -> str:
        """Bootstrap servers of the cluster."""
        return self.settings.kafka.bootstrap_servers

    @property
    def transaction_timeout_ms(self) -> int:
        """Transaction timeout of the worker."""
        return round(self.settings.worker.transaction_timeout_seconds * 1000)

    @property
    def described(self) -> dict[str, TopicDescription]:
        """The existing topics that could be described."""
        return {
            name: seen.found
            for name, seen in self.topics.items()
            if isinstance(seen.found, TopicDescription) and seen.found.exists
        }

    def existing(self, *names: str) -> dict[str, TopicDescription]:
        """Return those of `described` that are among `names`."""
        return {name: found for name, found in self.described.items() if name in names}


def number_of(values: Values | None, name: str) -> int | None:
    """Return a numeric setting; None if it is missing."""
    text = (values or {}).get(name)
    return None if text is None else int(text)


_IN_PROPERTIES = "in every broker's server.properties; restart one after the other"


def alter_topic(snapshot: Snapshot, topic: str, setting: str, value: object) -> str:
    """Return the command that changes a topic's setting."""
    return (
        f"kafka-configs.sh --bootstrap-server {snapshot.servers} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {setting}={value}"
    )


def alter_brokers(snapshot: Snapshot, setting: str, value: object) -> str:
    """Return the command that changes a dynamic setting of all brokers."""
    return (
        f"kafka-configs.sh --bootstrap-server {snapshot.servers} --alter --entity-type brokers "
        f"--entity-default --add-config {setting}={value}"
    )


def restart_with(setting: str, value: object) -> str:
    """Return the change of a setting that brokers read at their start."""
    return f"{setting}={value} {_IN_PROPERTIES}"


def add_replicas(snapshot: Snapshot, topic: str, wanted: int) -> str:
    """Return the command that adds replicas to a topic."""
    return (
        f"kafka-reassign-partitions.sh --bootstrap-server {snapshot.servers} --execute "
        f"--reassignment-json-file FILE, with {wanted} brokers for each partition of {topic}"
    )


def grant(snapshot: Snapshot, resource: str, operations: str) -> str:
    """Return the command that grants permissions.

    Args:
        snapshot: names the cluster.
        resource: option of the tool: `--topic orders`.
        operations: joined by " and ".
    """
    options = " ".join(f"--operation {name}" for name in operations.split(" and "))
    return (
        f"kafka-acls.sh --bootstrap-server {snapshot.servers} --add --allow-principal "
        f"User:WORKER {options} {resource}"
    )
