"""Composition of a process's HTTP server and observer from the settings."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from eosframework.application.composition.context import Observed, WorkerContext
from eosframework.application.internal_topics import task_counts
from eosframework.application.monitoring.http.exchange import Health
from eosframework.application.monitoring.http.http_server import serving
from eosframework.application.monitoring.http.state_pages import StatePages
from eosframework.application.monitoring.metrics.catalogue import Process
from eosframework.application.monitoring.metrics.observer import (
    Identity,
    relay_observer,
    worker_observer,
)
from eosframework.application.monitoring.stores_here import StoresHere
from eosframework.config import Settings
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.worker.worker_views import WorkerView
from eosframework.kafka.client.partitioner import partition_of
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.postgres.outbox.relay import RelayView
from eosframework.process.watchdog import TurnWatch, Watchdog


@contextmanager
def observed_worker(
    context: WorkerContext, process: Process, watchdog: TurnWatch
) -> Generator[Observed[WorkerView]]:
    """Run a worker's HTTP server during the block.

    Args:
        context: of the worker; `worker.http_address` is set.
        process: the kind of worker.
        watchdog: of the worker's thread.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    graph, settings = context.graph, context.settings.worker
    assert settings.http_address is not None
    identity = Identity(graph.application, process, context.instance)
    # A record must take less, and after it an open transaction has expired.
    longest_seconds = settings.transaction_timeout_seconds
    health = Health(longest_seconds, watchdog.turn_seconds, watchdog.clock)
    shared = SharedStores() if context.shared is None else context.shared
    statistics = ClientStatistics()
    observer = worker_observer(identity, health, statistics, shared, longest_seconds)
    tasks = task_counts(graph, context.facts.partitions)
    state = StatePages(graph.application, StoresHere(graph, shared, tasks, partition_of))
    pages = {**observer.pages, "state": state.page}
    with serving(settings.http_address, pages, hosts=settings.http_hosts):
        yield Observed(statistics, observer.turn, shared)


@contextmanager
def observed_relay(settings: Settings, watchdog: Watchdog) -> Generator[Observed[RelayView]]:
    """Run a relay's HTTP server during the block.

    Args:
        settings: of the relay; `outbox.http_address` is set.
        watchdog: of the main thread.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    outbox = settings.outbox
    assert outbox.http_address is not None
    statistics = ClientStatistics()
    health = Health(
        settings.worker.transaction_timeout_seconds, watchdog.turn_seconds, watchdog.clock
    )
    observer = relay_observer(Identity(outbox.name, Process.RELAY), health, statistics)
    setting = "outbox.http_address"
    with serving(outbox.http_address, observer.pages, hosts=outbox.http_hosts, setting=setting):
        yield Observed(statistics, observer.turn)
