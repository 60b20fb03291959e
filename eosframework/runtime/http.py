"""Composition of a process's HTTP server and observer from the settings."""

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
    """The parts of a worker that the HTTP server reads.

    Args:
        shared: the worker's stores, readable from other threads.
        statistics: of the worker's Kafka clients.
        turn: called each turn with a function that takes a snapshot.
    """

    shared: SharedStores
    statistics: ClientStatistics
    turn: Callable[[Callable[[], WorkerView]], None]


@dataclass(frozen=True, slots=True)
class AskedRelay:
    """The parts of a relay that the HTTP server reads; see `AskedWorker`."""

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
    """Run a worker's HTTP server during the block.

    Args:
        address: to listen on.
        graph: of the application.
        settings: of the worker.
        instance: the worker's instance name.
        process: the kind of worker.
        facts: the cluster's metadata, read at the start.
        stuck_seconds: upper bound for the time of a turn.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    identity = Identity(graph.application, process, instance)
    # A record must take less, and after it an open transaction has expired.
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
    """Run a relay's HTTP server during the block.

    Args:
        address: to listen on.
        settings: of the relay.
        stuck_seconds: upper bound for the time of a turn.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    statistics = ClientStatistics()
    health = Health(settings.worker.transaction_timeout_seconds, stuck_seconds)
    identity = Identity(settings.outbox.name, Process.RELAY)
    observer = relay_observer(identity, health, statistics)
    hosts = settings.outbox.http_hosts
    with serving(address, observer.pages, hosts=hosts, setting="outbox.http_address"):
        yield AskedRelay(statistics, observer.turn)
