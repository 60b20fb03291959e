"""The ACLs that the principal of a worker or relay needs on a cluster with an authorizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from eosframework.config import Guarantee, Settings
from eosframework.kafka.admin.acls import Access, merged
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import TransactionalId, control_topic, prefix, tables_group


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
    return Access("Topic", control_topic(application), ("Read", "Write", "Describe"))


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
