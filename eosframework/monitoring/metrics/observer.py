"""Keeps the newest view of a process, and answers from it.

The main thread makes a view twice a second, and threads that answer read the newest one: nothing
that runs records waits for who asks.
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
from eosframework.monitoring.metrics.exposition import CONTENT_TYPE, Exposition
from eosframework.monitoring.metrics.figures import (
    relay_figures,
    tables_figures,
    transforms_figures,
)
from eosframework.monitoring.metrics.metric import Figures, Process
from eosframework.monitoring.metrics.reasons import OpenTransactions, relay_reasons, worker_reasons
from eosframework.monitoring.metrics.task_status import relay_status, worker_status
from eosframework.outbox.relay_views import RelayView
from eosframework.processing.stores.shared_stores import SharedStores
from eosframework.processing.worker_views import WorkerView

VIEW_SECONDS = 0.5
"""How old a view may get."""

View = TypeVar("View", WorkerView, RelayView)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process is.

    Args:
        application: or the name of a relay.
        instance: its name among the processes of the application; None: it has none.
    """

    application: str
    process: Process
    instance: str | None = None


class Observer(Generic[View]):
    """Keeps the newest view of a process, and answers from it.

    Args:
        identity: of the process.
        health: of its main thread.
        statistics: of its clients.
        figures: from a view to the values of metrics.
        reasons: from a view to why the process is not ready.
        status: from a view to what `/status` tells.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        identity: Identity,
        health: Health,
        statistics: ClientStatistics,
        figures: Callable[[View, ClientsSeen], Figures],
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
        """What this answers."""
        return {
            "livez": self._health.livez,
            "readyz": self._health.readyz,
            "metrics": self._metrics,
            "status": self._status_page,
        }

    def turn(self, view: Callable[[], View]) -> None:
        """Say that the main thread goes on, and let it look around when it is time."""
        if self._clock() >= self._due:
            self._due = self._clock() + VIEW_SECONDS
            self._seen = made = view(), self._statistics.look()
            self._reasons = self._judge(*made)
        self._health.turn(self._reasons)

    def _values(self) -> Figures:
        identity = self._identity
        own = (identity.instance or "", identity.process.value, version("eosframework"))
        common: Figures = {
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


def transforms_observer(
    identity: Identity,
    health: Health,
    statistics: ClientStatistics,
    shared: SharedStores,
    longest_transaction_seconds: float,
) -> Observer[WorkerView]:
    """Return the observer of a worker that transforms."""
    open_ = OpenTransactions(longest_transaction_seconds)
    return Observer(
        identity,
        health,
        statistics,
        lambda view, seen: transforms_figures(view, seen, shared.stats()),
        lambda view, seen: worker_reasons(view, seen, open_),
        worker_status,
    )


def tables_observer(
    identity: Identity,
    health: Health,
    statistics: ClientStatistics,
    longest_transaction_seconds: float,
) -> Observer[WorkerView]:
    """Return the observer of a worker that fills tables."""
    open_ = OpenTransactions(longest_transaction_seconds)
    return Observer(
        identity,
        health,
        statistics,
        tables_figures,
        lambda view, seen: worker_reasons(view, seen, open_),
        worker_status,
    )


def relay_observer(
    identity: Identity,
    health: Health,
    statistics: ClientStatistics,
) -> Observer[RelayView]:
    """Return the observer of a relay."""
    return Observer(identity, health, statistics, relay_figures, relay_reasons, relay_status)
