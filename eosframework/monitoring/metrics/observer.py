"""The observer of a process: keeps the newest snapshot and answers requests from it.

The main thread makes a snapshot twice a second, and request threads read the newest one, so
requests never delay the processing of records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from eosframework.kafka.client.statistics import ClientsSeen, ClientStatistics
from eosframework.monitoring.http.health import Health, Reason
from eosframework.monitoring.http.pages import Answer, Pages, Request, Text
from eosframework.monitoring.metrics.catalogue import MetricValues, Process
from eosframework.monitoring.metrics.exposition import CONTENT_TYPE, Exposition
from eosframework.monitoring.metrics.metric_values import (
    relay_values,
    tables_values,
    transforms_values,
)
from eosframework.monitoring.metrics.readiness import (
    OpenTransactions,
    relay_reasons,
    relay_status,
    worker_reasons,
    worker_status,
)
from eosframework.outbox.relay import RelayView
from eosframework.processing.stores.shared_stores import SharedStores
from eosframework.processing.worker_views import WorkerView

VIEW_SECONDS = 0.5
"""Interval of snapshots."""

View = TypeVar("View", WorkerView, RelayView)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a process.

    Args:
        application: name of the application or of the relay.
        instance: instance name; None: a relay has none.
    """

    application: str
    process: Process
    instance: str | None = None


class Observer(Generic[View]):
    """Keeps the newest snapshot of a process and answers requests from it.

    Args:
        identity: of the process.
        health: of its main thread.
        statistics: of its Kafka clients.
        figures: returns metric values from a snapshot.
        reasons: returns the reasons that the process is not ready from a snapshot.
        status: returns the content of `/status` from a snapshot.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        identity: Identity,
        health: Health,
        statistics: ClientStatistics,
        figures: Callable[[View, ClientsSeen], MetricValues],
        reasons: Callable[[View, ClientsSeen], Sequence[Reason]],
        status: Callable[[View, ClientsSeen], Mapping[str, Any]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._statistics = statistics
        self._figures = figures
        self._status = status
        self._judge = reasons
        self._clock = clock
        self._due = 0.0
        self._seen: tuple[View, ClientsSeen] | None = None
        self._reasons: Sequence[Reason] = ()
        self._health = health
        self._exposition = Exposition(identity.application, self._values)

    @property
    def pages(self) -> Pages:
        """The pages that this object answers."""
        return {
            "livez": self._health.livez,
            "readyz": self._health.readyz,
            "metrics": self._metrics,
            "status": self._status_page,
        }

    def turn(self, view: Callable[[], View]) -> None:
        """Note a turn of the main thread, and take a snapshot when the interval is over."""
        if self._clock() >= self._due:
            self._due = self._clock() + VIEW_SECONDS
            # Request threads read `_seen` once per answer. It is replaced and never changed, so an
            # answer shows one moment without a lock that the main thread would wait for.
            self._seen = made = view(), self._statistics.look()
            self._reasons = self._judge(*made)
        self._health.turn(self._reasons)

    def _values(self) -> MetricValues:
        identity = self._identity
        own = (identity.instance or "", identity.process.value, version("eosframework"))
        common: MetricValues = {
            "info": [(own, 1)],
            "ready": [((), 0 if self._health.reasons() else 1)],
            "turn_age_seconds": [((), self._health.turn_age_seconds)],
        }
        return common if self._seen is None else {**common, **self._figures(*self._seen)}

    def _metrics(self, request: Request) -> Answer:
        return Answer(HTTPStatus.OK, Text(self._exposition.text(), CONTENT_TYPE))

    def _status_page(self, request: Request) -> Answer:
        reasons = [reason.message for reason in self._health.reasons()]
        identity = self._identity
        content: dict[str, Any] = {
            "application": identity.application,
            "instance": identity.instance,
            "process": identity.process.value,
            "ready": not reasons,
            "reasons": reasons,
        }
        if self._seen is not None:
            content |= self._status(*self._seen)
        return Answer(HTTPStatus.OK, content)


def worker_observer(
    identity: Identity,
    health: Health,
    statistics: ClientStatistics,
    shared: SharedStores,
    longest_transaction_seconds: float,
) -> Observer[WorkerView]:
    """Return the observer of a worker or a table writer."""

    def values(view: WorkerView, seen: ClientsSeen) -> MetricValues:
        if identity.process is Process.TABLES:
            return tables_values(view, seen)
        return transforms_values(view, seen, shared.stats())

    open_ = OpenTransactions(longest_transaction_seconds)
    return Observer(
        identity,
        health,
        statistics,
        values,
        lambda view, seen: worker_reasons(view, seen, open_),
        worker_status,
    )


def relay_observer(
    identity: Identity,
    health: Health,
    statistics: ClientStatistics,
) -> Observer[RelayView]:
    """Return the observer of an outbox relay."""
    return Observer(identity, health, statistics, relay_values, relay_reasons, relay_status)
