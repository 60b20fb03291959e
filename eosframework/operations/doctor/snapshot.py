"""All that the checks judge: the topology, the settings, and the cluster as it was seen once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eosframework.application.partitioner_checks import KeySample
from eosframework.application.start_checks import Facts
from eosframework.config import Settings
from eosframework.kafka.admin.metadata import GroupFacts, TopicFacts, Values
from eosframework.kafka.inspect.coordinators import TransactionListing
from eosframework.kafka.inspect.formats import CONSUMER_OFFSETS, TRANSACTION_STATE
from eosframework.kafka.inspect.hanging import OpenTransaction
from eosframework.kafka.inspect.probes import Clock
from eosframework.operations.doctor.findings import Seen
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import TransactionalId

COORDINATION = (TRANSACTION_STATE, CONSUMER_OFFSETS)
"""The topics in which brokers keep transactions and offsets."""


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The event times of the records that a source gives next, as milliseconds since 1970."""

    earliest_ms: int
    latest_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was seen.

    Args:
        sources: topics that the application reads.
        sinks: topics that it writes and names.
        topics: those, the registry and the brokers' own.
        brokers: their settings by id; not seen where one of them did not tell.
        producer: the effective properties of a task's producer.
        consumer: those of the worker's consumer.
        refused_properties: why librdkafka does not take them.
        levels: the highest metadata.version that each broker supports.
        facts: what the checks before a start look at.
        open_transactions: in the application's topics.
        open_offsets: where brokers keep the offsets of the application's group.
        ids: transactional ids that begin as this application's do, and those that it has leased.
        lacking: by a transactional id of each sub-topology, the operation that is missing on it.
        event_times: by source; one that has no record is missing.
        leases: the tasks that have leased ids, those that would get one at a start included, by
            id; None: ids are derived.
        keys: of topics whose keys meet those of others, a sample.
        persisted: topics that go to tables; some are inputs, some the application's own.
        tables_group: of what fills tables; None: nothing does.
        some_brokers: settings of those that told, where not all did.
    """

    taken_at: datetime
    graph: Graph
    settings: Settings
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    registry: str
    topics: Mapping[str, Seen[TopicFacts]]
    brokers: Seen[Mapping[int, Values]]
    producer: Mapping[str, Any]
    consumer: Mapping[str, Any]
    refused_properties: tuple[str, ...]
    allowed_on_cluster: Seen[frozenset[str] | None]
    group: Seen[GroupFacts]
    facts: Seen[Facts]
    levels: Seen[Mapping[int, int]]
    clock: Seen[Clock]
    open_transactions: Seen[tuple[OpenTransaction, ...]]
    open_offsets: Seen[tuple[OpenTransaction, ...]]
    ids: Seen[tuple[TransactionListing, ...]]
    lacking: Mapping[str, Seen[str]]
    event_times: Mapping[str, Seen[EventTimes | None]]
    leases: Seen[Mapping[str, TransactionalId] | None]
    keys: Seen[Mapping[str, KeySample]]
    persisted: tuple[str, ...] = ()
    some_brokers: Mapping[int, Values] = field(default_factory=dict[int, Values])
    tables_group: Seen[GroupFacts] | None = None

    @property
    def servers(self) -> str:
        """How the cluster is reached."""
        return self.settings.kafka.bootstrap_servers

    @property
    def transaction_timeout_ms(self) -> int:
        """After how long brokers are asked to abort a transaction."""
        return round(self.settings.worker.transaction_timeout_seconds * 1000)

    def existing(self, *names: str) -> dict[str, TopicFacts]:
        """Return those of the topics that exist and could be looked at; None named: all."""
        return {
            name: seen.found
            for name, seen in self.topics.items()
            if (not names or name in names)
            and isinstance(seen.found, TopicFacts)
            and seen.found.exists
        }


def number_of(values: Values | None, name: str) -> int | None:
    """Return a setting that is a number; None where it is missing."""
    text = (values or {}).get(name)
    return None if text is None else int(text)
