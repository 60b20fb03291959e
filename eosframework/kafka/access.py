"""What the principal of a worker has to be allowed, where the cluster has an authorizer."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eosframework.config import Guarantee, Settings
from eosframework.topology.graph import Graph
from eosframework.txnid import TransactionalId, prefix, registry_topic, tables_group

_INCLUDE_DESCRIBE = frozenset({"Read", "Write", "Delete", "Alter"})
"""Whoever is allowed one of these may Describe as well (StandardAuthorizerData, Kafka's docs)."""

_ORDER = ("Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs")

_OPTIONS = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--transactional-id",
    "Cluster": "--cluster",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Operations on one resource, or on all whose name begins so.

    Args:
        kind: as Kafka's tools write it: Topic, Group, TransactionalId or Cluster.
        name: None: the cluster, which has none.
        operations: as Kafka's tools write them, for example DescribeConfigs.
    """

    kind: str
    name: str | None
    operations: tuple[str, ...]
    is_prefix: bool = False

    def __str__(self) -> str:
        name = "" if self.name is None else f" {self.name}"
        return f"{self.kind}{name}{'* (prefixed)' if self.is_prefix else ''}: {self.listed}"

    @property
    def granted(self) -> tuple[str, ...]:
        """The operations to grant: those that no other one includes."""
        if _INCLUDE_DESCRIBE.isdisjoint(self.operations):
            return self.operations
        return tuple(name for name in self.operations if name != "Describe")

    @property
    def listed(self) -> str:
        """The operations to grant, for a sentence."""
        return ", ".join(self.granted)

    def missing(self, allowed: frozenset[str] | None) -> str:
        """Return the operations that are not `allowed`; empty where brokers do not say."""
        if allowed is None:
            return ""
        return " and ".join(name for name in self.granted if name not in allowed)

    def as_data(self) -> dict[str, Any]:
        """Return what to grant as plain data, for JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "is_prefix": self.is_prefix,
            "operations": list(self.granted),
        }

    def command(self, servers: str, principal: str) -> str:
        """Return the command of Kafka's tools that grants it."""
        words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add"]
        words += ["--allow-principal", principal]
        words += [word for name in self.granted for word in ("--operation", name)]
        words += [_OPTIONS[self.kind], *([] if self.name is None else [self.name])]
        words += ["--resource-pattern-type", "prefixed"] if self.is_prefix else []
        return shlex.join(words)


def worker_access(
    graph: Graph,
    settings: Settings,
    sources: Sequence[str],
    sinks: Sequence[str],
    ids: Sequence[TransactionalId] | None = None,
) -> list[Access]:
    """Return what a worker of this topology has to be allowed, and no more.

    Args:
        graph: of the application.
        settings: of its workers.
        sources: topics that it reads.
        sinks: topics that it writes.
        ids: those that are leased; None: all are derived, so a prefix covers them.
    """
    return merged(
        [
            *topic_access(graph, sources, sinks),
            *tables_access(graph),
            *purging_access(graph, settings),
            registry_access(graph.application),
            *_transaction_access(graph.application, settings, ids),
        ]
    )


def relay_access(settings: Settings, topics: Iterable[str]) -> list[Access]:
    """Return what a relay has to be allowed, and no more.

    Args:
        settings: of the relay.
        topics: those that are published to.
    """
    name = settings.outbox.name
    return [
        *map(topic_written, sorted(set(topics))),
        registry_access(name),
        *_transaction_access(name, settings, None),
    ]


def merged(needed: Iterable[Access]) -> list[Access]:
    """Return one entry for each resource, in the order in which these come first."""
    operations: dict[tuple[str, str | None, bool], dict[str, None]] = {}
    for access in needed:
        resource = access.kind, access.name, access.is_prefix
        operations.setdefault(resource, {}).update(dict.fromkeys(access.operations))
    return [
        Access(kind, name, tuple(sorted(names, key=_ORDER.index)), is_prefix)
        for (kind, name, is_prefix), names in operations.items()
    ]


def topic_access(graph: Graph, sources: Sequence[str], sinks: Sequence[str]) -> list[Access]:
    """Return what it does with the topics that the topology names, and with its group."""
    return [
        *(Access("Topic", topic, ("Read", "Describe")) for topic in sources),
        *(
            Access("Topic", topic, ("Read", "Describe"))
            for topic in sorted({table.topic for table in graph.global_tables} - set(sources))
        ),
        *map(topic_written, sinks),
        *(
            Access("Topic", store.changelog, ("Read", "Write", "Describe"))
            for part in graph.sub_topologies
            for store in part.stores
        ),
        *([Access("Group", graph.application, ("Read", "Describe"))] if sources else []),
    ]


def tables_access(graph: Graph) -> list[Access]:
    """Return what it does with the topics that go to tables, and with the group for that."""
    if not graph.persisters:
        return []
    return [
        *(Access("Topic", persister.topic, ("Read", "Describe")) for persister in graph.persisters),
        Access("Group", tables_group(graph.application), ("Read", "Describe")),
    ]


def purging_access(graph: Graph, settings: Settings) -> Iterator[Access]:
    """Yield what removes what nobody will read again, so that its own topics do not grow."""
    for repartition in graph.repartitions:
        yield Access("Topic", repartition.topic, ("Delete",))
    if settings.database.keep_rows_seconds is None or settings.worker.receipts:
        return
    for persister in graph.persisters:
        if persister.sub_topology is not None:
            yield Access("Topic", persister.topic, ("Delete",))


def topic_written(topic: str) -> Access:
    """Return what it does with a topic that it writes and does not read."""
    return Access("Topic", topic, ("Write", "Describe"))


def registry_access(application: str) -> Access:
    """Return what it does with its registry, once that is there."""
    return Access("Topic", registry_topic(application), ("Read", "Write", "Describe"))


def _transaction_access(
    application: str, settings: Settings, ids: Sequence[TransactionalId] | None
) -> Iterator[Access]:
    if settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    operations = ("Write", "Describe")
    if ids is None:
        yield Access("TransactionalId", prefix(application), operations, is_prefix=True)
    for id_ in ids or ():
        yield Access("TransactionalId", str(id_), operations)
    if not settings.kafka.assume_transaction_verification:
        yield Access("Cluster", None, ("DescribeConfigs",))
