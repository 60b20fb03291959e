"""Composition of what a process answers over HTTP: settings become an observer and a server."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from eosframework.application.internal_topics import task_counts
from eosframework.application.start_checks import Facts
from eosframework.config import Settings
from eosframework.kafka.client.partitioner import partition_of
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.monitoring.http.health import Health
from eosframework.monitoring.http.http_server import serving
from eosframework.monitoring.http.state_pages import StatePages
from eosframework.monitoring.metrics.metric import Process
from eosframework.monitoring.metrics.observer import (
    Identity,
    relay_observer,
    tables_observer,
    transforms_observer,
)
from eosframework.outbox.relay_views import RelayView
from eosframework.processing.stores.shared_stores import SharedStores
from eosframework.processing.worker_views import WorkerView
from eosframework.topology.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class AskedWorker:
    """What a worker needs so that it can be asked.

    Args:
        shared: takes its stores.
        statistics: looks at its clients.
        turn: to be called each turn with what makes a view.
    """

    shared: SharedStores
    statistics: ClientStatistics
    turn: Callable[[Callable[[], WorkerView]], None]


@dataclass(frozen=True, slots=True)
class AskedRelay:
    """What a relay needs so that it can be asked; see `AskedWorker`."""

    statistics: ClientStatistics
    turn: Callable[[Callable[[], RelayView]], None]


@contextmanager
def asked_worker(
    address: str,
    graph: Graph,
    settings: Settings,
    instance: str,
    process: Process,
    facts: Facts,
    stuck_seconds: float,
) -> Generator[AskedWorker]:
    """Answer for a worker for the length of the block.

    Args:
        address: where to listen.
        graph: of the application.
        settings: of the worker.
        instance: its name.
        process: what it does.
        facts: about the cluster, as found at the start.
        stuck_seconds: no turn takes longer.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    identity = Identity(graph.application, process, instance)
    # A record must take less, and what was open has expired after it.
    longest_seconds = settings.worker.transaction_timeout_seconds
    health = Health(longest_seconds, stuck_seconds)
    shared, statistics = SharedStores(), ClientStatistics()
    if process is Process.TABLES:
        observer = tables_observer(identity, health, statistics, longest_seconds)
    else:
        observer = transforms_observer(identity, health, statistics, shared, longest_seconds)
    state = StatePages(graph, shared, task_counts(graph, facts.partitions), partition_of)
    pages = {**observer.pages, "state": state.page}
    with serving(address, pages, hosts=settings.worker.http_hosts):
        yield AskedWorker(shared, statistics, observer.turn)


@contextmanager
def asked_relay(address: str, settings: Settings, stuck_seconds: float) -> Generator[AskedRelay]:
    """Answer for a relay for the length of the block.

    Args:
        address: where to listen.
        settings: of the relay.
        stuck_seconds: no turn takes longer.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    statistics = ClientStatistics()
    health = Health(settings.worker.transaction_timeout_seconds, stuck_seconds)
    identity = Identity(settings.outbox.name, Process.RELAY)
    observer = relay_observer(identity, health, statistics)
    hosts = settings.outbox.http_hosts
    with serving(address, observer.pages, hosts=hosts, setting="outbox.http_address"):
        yield AskedRelay(statistics, observer.turn)
