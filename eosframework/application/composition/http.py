"""Composition of a process's HTTP server and observer from the settings."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from eosframework.application.composition.context import Observed, WorkerContext
from eosframework.application.context import ApplicationContext, connect
from eosframework.application.internal_topics import task_counts
from eosframework.application.monitoring.http.exchange import Health
from eosframework.application.monitoring.http.http_server import host_and_port, serving
from eosframework.application.monitoring.http.state_pages import StatePages
from eosframework.application.monitoring.metrics.catalogue import Process
from eosframework.application.monitoring.metrics.observer import (
    Identity,
    relay_observer,
    worker_observer,
)
from eosframework.application.monitoring.owners import Owners
from eosframework.application.monitoring.shared_answers import AskingThread
from eosframework.application.monitoring.stores_here import StoresHere
from eosframework.application.worker_addresses import announce, worker_addresses
from eosframework.config import Settings
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.worker.worker_views import WorkerView
from eosframework.errors import EosError
from eosframework.kafka.client.partitioner import partition_of
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.postgres.outbox.relay import RelayView
from eosframework.process.watchdog import TurnWatch, Watchdog

ANNOUNCE_AGAIN_SECONDS = 5.0
"""Time between two attempts to announce an address."""


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
    # Its requests are sent on a thread of their own, which has clients of its own.
    asking, cluster = AskingThread(), connect(graph, context.settings)
    owners = _owners(cluster, context.instance, asking)
    stores = StoresHere(graph, shared, tasks, partition_of)
    state = StatePages(graph.application, stores, owners)
    pages = {**observer.pages, "state": state.page}
    stated = settings.http_advertised_address
    hosts = (*settings.http_hosts, *(() if stated is None else [host_and_port(stated)[0]]))
    with serving(settings.http_address, pages, hosts=hosts) as taken:
        address = settings.announced_address(taken)
        if graph.stores and process is Process.TRANSFORMS and address is not None:
            asking.run(_Announcement(cluster, context.instance, address, asking).announce)
        try:
            yield Observed(statistics, observer.turn, shared, owners)
        finally:
            asking.stop()


def _owners(context: ApplicationContext, instance: str, asking: AskingThread) -> Owners:
    graph, admin = context.graph, context.admin
    return Owners(
        instance,
        {part.name: [source.topic for source in part.sources] for part in graph.sub_topologies},
        lambda: admin.describe_group(graph.application),
        lambda: worker_addresses(context.control_topic.refresh()),
        asking.run,
    )


@dataclass(frozen=True, slots=True)
class _Announcement:
    """The announcement of a worker's address, repeated until it is acknowledged."""

    context: ApplicationContext
    instance: str
    address: str
    asking: AskingThread

    def announce(self) -> None:
        """Announce the address, or try again later."""
        admin, application = self.context.admin, self.context.graph.application
        try:
            members = [name for name in admin.describe_group(application).instances if name]
            announce(self.context.control_topic, self.instance, self.address, members)
        except EosError as error:
            structlog.get_logger("eosframework.http").warning(
                "address_not_announced", address=self.address, error=str(error)
            )
            again = threading.Timer(ANNOUNCE_AGAIN_SECONDS, self.asking.run, [self.announce])
            again.daemon = True
            again.start()


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
