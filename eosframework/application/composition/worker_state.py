"""Composition of a worker's state: its stores on this machine and their changelogs."""

from __future__ import annotations

from collections.abc import Mapping

from eosframework.application.internal_topics import TOMBSTONES_KEPT_SECONDS, task_counts
from eosframework.config import Settings
from eosframework.engine.operators.entries import LAYOUT
from eosframework.engine.operators.store_transaction import Limits
from eosframework.engine.restoration.global_tables import GlobalTables
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.restoration.restoration import Restoration
from eosframework.engine.restoration.standby import Standby, StandbyPlan
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.stores.state_ports import CopyBackend, StoreIdentity
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.kafka.consumer.changelog_reader import KafkaChangelogs
from eosframework.state import state_backend
from eosframework.state.memory import MemoryState
from eosframework.topology.graph.graph import Graph

HELD_SHARE = 1.5
"""Longest wait for an open transaction in a changelog, in transaction timeouts. Brokers end an
application's transaction within one timeout and the interval of their check, unless it hangs."""


def local_state(
    graph: Graph,
    settings: Settings,
    instance: str,
    topics: Mapping[str, TopicDescription],
    admin: ClusterAdmin,
    shared: SharedStores | None = None,
) -> LocalState:
    """Return the state of a worker's tasks.

    Args:
        graph: of the application.
        settings: of the worker.
        instance: the worker's instance name.
        topics: metadata of every topic in the graph, read at the worker's start.
        admin: sends requests to the cluster.
        shared: lets other threads read the stores; None: no other thread does.

    Raises:
        ConfigurationError: the directory cannot be used.
    """
    log = KafkaChangelogs(settings.kafka, admin)
    backend = state_backend(settings.state, graph.application, instance)
    partitions = {name: topic.partitions for name, topic in topics.items()}
    tasks = task_counts(graph, partitions)
    stores = _stores(graph, topics)
    kept_seconds = _tombstones_kept_seconds(graph, topics)
    copies = StandbyPlan(
        instance,
        settings.state.standby_copies,
        {name: tasks[name] for name in stores if name in tasks},
        stores,
        {store.name: store.changelog for store in graph.stores},
        kept_seconds,
    )
    held_seconds = HELD_SHARE * settings.worker.transaction_timeout_seconds
    return LocalState(
        backend,
        stores,
        tasks,
        Restoration(log, kept_seconds, held_seconds=held_seconds),
        shared,
        _global_tables(graph, partitions, log),
        MemoryState(),
        _standby(copies, settings, graph.application, backend, log),
        Limits(
            settings.worker.hot_key_limit,
            settings.worker.queue_megabytes * 2**20,
            settings.worker.reorder_limit,
        ),
    )


def _stores(graph: Graph, topics: Mapping[str, TopicDescription]) -> dict[str, list[StoreIdentity]]:
    """Return the identities of the stores of each sub-topology that has some."""
    return {
        part.name: [
            StoreIdentity(store.name, topics[store.changelog].topic_id, LAYOUT)
            for store in part.stores
        ]
        for part in graph.sub_topologies
        if part.stores
    }


def _standby(
    plan: StandbyPlan, settings: Settings, group: str, backend: CopyBackend, log: KafkaChangelogs
) -> Standby | None:
    if not plan.copies:
        return None
    # Import the client only for standby copies.
    from eosframework.kafka.admin.group_members import KafkaGroupMembers

    return Standby(plan, backend, log, KafkaGroupMembers(settings.kafka, group))


def _global_tables(
    graph: Graph, partitions: Mapping[str, int], log: KafkaChangelogs
) -> GlobalTables | None:
    counts = {topic: partitions[topic] for topic in graph.global_topics}
    return GlobalTables(log, counts) if counts else None


def _tombstones_kept_seconds(graph: Graph, topics: Mapping[str, TopicDescription]) -> float:
    """Return the shortest `delete.retention.ms` of the changelogs, in seconds."""
    changelogs = (topics[name] for name in graph.changelog_topics)
    kept = [(found.values or {}).get("delete.retention.ms") for found in changelogs]
    known = [TOMBSTONES_KEPT_SECONDS if ms is None else int(ms) / 1000 for ms in kept]
    return min(known, default=TOMBSTONES_KEPT_SECONDS)
