"""The values that all parts of a worker are composed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from eosframework.application.context import ApplicationContext
from eosframework.application.start_checks import Facts
from eosframework.kafka.client.statistics import ClientStatistics

if TYPE_CHECKING:
    from eosframework.application.monitoring.owners import Owners
    from eosframework.engine.stores.shared_stores import SharedStores
    from eosframework.engine.worker.worker_views import WorkerView

View = TypeVar("View")


@dataclass(frozen=True, slots=True)
class Observed(Generic[View]):
    """The parts of a process that the HTTP server reads.

    Args:
        statistics: of the process's Kafka clients.
        turn: called each turn with a function that takes a snapshot.
        shared: a worker's stores, readable from other threads.
        owners: of the tasks with stores; None: the process has none.
    """

    statistics: ClientStatistics
    turn: Callable[[Callable[[], View]], None]
    shared: SharedStores | None = None
    owners: Owners | None = None


@dataclass(frozen=True, slots=True)
class WorkerContext(ApplicationContext):
    """The values that all parts of a worker are composed from.

    Args:
        instance: the worker's instance name.
        facts: the cluster's metadata, read at the start.
        observed: the parts that the HTTP server reads; None: there is no server.
        shared: the worker's stores for other threads; None: no thread reads them.
    """

    instance: str
    facts: Facts
    observed: Observed[WorkerView] | None = None
    shared: SharedStores | None = None

    @property
    def statistics(self) -> ClientStatistics | None:
        """Statistics of the worker's Kafka clients; None: they are not collected."""
        return self.observed.statistics if self.observed else None
