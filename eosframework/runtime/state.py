"""Composition of state: settings and a graph become stores on this machine and their changelogs."""

from __future__ import annotations

from collections.abc import Mapping

from eosframework.application.internal_topics import TOMBSTONES_KEPT_SECONDS, task_counts
from eosframework.config import Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicFacts
from eosframework.kafka.consumer.changelog_reader import KafkaChangelogs
from eosframework.operators.entries import LAYOUT
from eosframework.operators.limits import Limits
from eosframework.processing.stores.global_tables import GlobalTables
from eosframework.processing.stores.local_state import LocalState
from eosframework.processing.stores.restoration import Restoration
from eosframework.processing.stores.shared_stores import SharedStores
from eosframework.processing.stores.standby import Standby, StandbyPlan
from eosframework.processing.stores.state_ports import CopyBackend, StoreIdentity
from eosframework.state import state_backend
from eosframework.state.memory import MemoryState
from eosframework.topology.graph.graph import Graph

HELD_SHARE = 1.5
"""How long an open transaction in a changelog is waited for, in transaction timeouts: brokers end
one of this application's own within one, and their look at the clock, unless it hangs."""


def local_state(
    graph: Graph,
    settings: Settings,
    instance: str,
    topics: Mapping[str, TopicFacts],
    admin: ClusterAdmin,
    shared: SharedStores | None = None,
) -> LocalState:
    """Return the state of a worker's tasks, where there is any.

    Args:
        graph: of the application.
        settings: of the worker.
        instance: its name.
        topics: every topic that the graph names, as it was found when the worker starts.
        admin: asks the cluster.
        shared: lets other threads read the stores; None: nobody does.

    Raises:
        ConfigurationError: the directory cannot be used.
    """
    stores = {
        part.name: [
            StoreIdentity(store.name, topics[store.changelog].topic_id, LAYOUT)
            for store in part.stores
        ]
        for part in graph.sub_topologies
        if part.stores
    }
    kept = [
        _tombstones_kept_seconds(topics[store.changelog])
        for part in graph.sub_topologies
        for store in part.stores
    ]
    partitions = {name: topic.partitions for name, topic in topics.items()}
    kept_seconds = min(kept, default=TOMBSTONES_KEPT_SECONDS)
    log = KafkaChangelogs(settings.kafka, admin)
    backend = state_backend(settings.state, graph.application, instance)
    tasks = task_counts(graph, partitions)
    copies = StandbyPlan(
        instance,
        settings.state.standby_copies,
        {name: tasks[name] for name in stores if name in tasks},
        stores,
        {store.name: store.changelog for part in graph.sub_topologies for store in part.stores},
        kept_seconds,
        settings.worker.partitions_per_producer,
    )
    return LocalState(
        backend,
        stores,
        tasks,
        Restoration(
            log,
            kept_seconds,
            held_seconds=HELD_SHARE * settings.worker.transaction_timeout_seconds,
        ),
        shared,
        _global_tables(graph, partitions, log),
        MemoryState(),
        _standby(copies, settings, graph.application, backend, log),
        Limits(settings.worker.hot_key_limit, settings.worker.queue_megabytes * 2**20),
    )


def _standby(
    plan: StandbyPlan, settings: Settings, group: str, backend: CopyBackend, log: KafkaChangelogs
) -> Standby | None:
    if not plan.copies:
        return None
    # Whoever keeps no copies asks nobody.
    from eosframework.kafka.admin.group_members import KafkaGroupLook

    return Standby(plan, backend, log, KafkaGroupLook(settings.kafka, group))


def _global_tables(
    graph: Graph, partitions: Mapping[str, int], log: KafkaChangelogs
) -> GlobalTables | None:
    topics = {table.topic for table in graph.global_tables}
    return GlobalTables(log, {t: partitions[t] for t in topics}) if topics else None


def _tombstones_kept_seconds(changelog: TopicFacts) -> float:
    values = changelog.values
    kept = None if values is None else values.get("delete.retention.ms")
    return TOMBSTONES_KEPT_SECONDS if kept is None else int(kept) / 1000
