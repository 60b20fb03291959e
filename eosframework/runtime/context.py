"""The values that all parts of a worker are composed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from eosframework.application.control_topic import ControlTopic
from eosframework.application.start_checks import Facts
from eosframework.config import Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.topology.graph.graph import Graph

if TYPE_CHECKING:
    from eosframework.processing.stores.shared_stores import SharedStores
    from eosframework.processing.worker_views import WorkerView

View = TypeVar("View")


@dataclass(frozen=True, slots=True)
class Observed(Generic[View]):
    """The parts of a process that the HTTP server reads.

    Args:
        statistics: of the process's Kafka clients.
        shared: a worker's stores, readable from other threads.
        turn: called each turn with a function that takes a snapshot.
    """

    statistics: ClientStatistics
    shared: SharedStores
    turn: Callable[[Callable[[], View]], None]


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The values that all parts of a worker are composed from.

    Args:
        graph: of the application.
        settings: of the worker.
        instance: the worker's instance name.
        admin: sends requests to the cluster.
        control_topic: of the application.
        facts: the cluster's metadata, read at the start.
        observed: the parts that the HTTP server reads; None: there is no server.
    """

    graph: Graph
    settings: Settings
    instance: str
    admin: ClusterAdmin
    control_topic: ControlTopic
    facts: Facts
    observed: Observed[WorkerView] | None = None

    @property
    def statistics(self) -> ClientStatistics | None:
        """Statistics of the worker's Kafka clients; None: they are not collected."""
        return self.observed.statistics if self.observed else None
