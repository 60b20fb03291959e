"""What the principal of a worker has to be allowed, where the cluster has an authorizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eosframework.topology.graph import Graph
from eosframework.txnid import TransactionalId, prefix, tables_group


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
    def listed(self) -> str:
        """The operations, for a sentence."""
        return ", ".join(self.operations)

    def missing(self, allowed: frozenset[str] | None) -> str:
        """Return the operations that are not `allowed`; empty where brokers do not say."""
        if allowed is None:
            return ""
        return " and ".join(name for name in self.operations if name not in allowed)


def needed_access(
    graph: Graph,
    sources: Sequence[str],
    sinks: Sequence[str],
    registry: str,
    ids: Sequence[TransactionalId] | None = None,
) -> list[Access]:
    """Return everything that a worker of this topology has to be allowed.

    Args:
        graph: of the application.
        sources: topics that it reads.
        sinks: topics that it writes.
        registry: its registry topic.
        ids: those that are leased; None: all are derived, so a prefix covers them.
    """
    return [
        *topic_access(graph, sources, sinks),
        *tables_access(graph),
        *_purging_access(graph),
        Access("Topic", registry, ("Create", "Read", "Write", "Describe", "DescribeConfigs")),
        *_ids_access(graph, ids),
        Access("Cluster", None, ("DescribeConfigs",)),
    ]


def _purging_access(graph: Graph) -> Iterator[Access]:
    """Yield what removes what nobody will read again; without it the topics grow."""
    for repartition in graph.repartitions:
        yield Access("Topic", repartition.topic, ("Delete",))
    for persister in graph.persisters:
        if persister.sub_topology is not None:
            yield Access("Topic", persister.topic, ("Delete",))


def _ids_access(graph: Graph, ids: Sequence[TransactionalId] | None) -> Iterator[Access]:
    operations = ("Write", "Describe")
    if ids is None:
        yield Access("TransactionalId", prefix(graph.application), operations, is_prefix=True)
    for id_ in ids or ():
        yield Access("TransactionalId", str(id_), operations)


def topic_access(graph: Graph, sources: Sequence[str], sinks: Sequence[str]) -> list[Access]:
    """Return what it does with the topics that the topology names, and with its group."""
    return [
        *(Access("Topic", topic, ("Read", "Describe")) for topic in sources),
        *(
            Access("Topic", topic, ("Read", "Describe"))
            for topic in sorted({table.topic for table in graph.global_tables} - set(sources))
        ),
        *(Access("Topic", topic, ("Write", "Describe")) for topic in sinks),
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
