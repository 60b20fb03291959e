"""The observer of a process: keeps the newest snapshot and answers requests from it.

The main thread makes a snapshot twice a second, and request threads read the newest one, so
requests never delay the processing of records.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from eosframework.application.monitoring.http.exchange import (
    Answer,
    Health,
    Pages,
    Reason,
    Request,
    Text,
)
from eosframework.application.monitoring.metrics.catalogue import (
    METRICS,
    Kind,
    Metric,
    MetricValues,
    Process,
    Value,
)
from eosframework.engine.calls.call_figures import CallSnapshot
from eosframework.engine.histograms import HistogramSnapshot
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.stores.state_ports import StoreStats
from eosframework.engine.task.measurements import MeasuresSnapshot
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.engine.worker.worker_views import TaskView, WorkerView
from eosframework.kafka.client.statistics import ClientsSeen, ClientStatistics, Ends
from eosframework.postgres.outbox.relay import RelayView
from eosframework.records import TopicPartition

_CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Exposition:
    """Renders current values in Prometheus' text format.

    It adds the standard metrics of a process: CPU, memory and file descriptors.

    Args:
        application: a label of every metric.
        figures: returns the values; called at each request, on the request's thread.
    """

    def __init__(self, application: str, figures: Callable[[], MetricValues]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_ValueCollector(application, figures))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return all values as text."""
        return generate_latest(self._registry)


class _ValueCollector(Collector):
    def __init__(self, application: str, figures: Callable[[], MetricValues]) -> None:
        self._application = application
        self._figures = figures

    def describe(self) -> list[Family]:
        """Return nothing, so that registering does not collect values."""
        return []

    def collect(self) -> Iterator[Family]:
        figures = self._figures()
        for metric in METRICS:
            if metric.name in figures:
                family = _family(metric)
                for labels, value in figures[metric.name]:
                    _add(family, [self._application, *labels], value)
                yield family


def _family(metric: Metric) -> Family:
    labels = ["application", *metric.labels]
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(metric.full_name, metric.what, labels=labels)
        case Kind.GAUGE:
            return GaugeMetricFamily(metric.full_name, metric.what, labels=labels)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(metric.full_name, metric.what, labels=labels)


def _add(family: Family, labels: list[str], value: Value) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(value, HistogramSnapshot):
        family.add_metric(labels, _buckets(value), value.total)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
        assert not isinstance(value, HistogramSnapshot), family.name
        family.add_metric(labels, value)


def _buckets(value: HistogramSnapshot) -> list[tuple[str, float]]:
    """Return cumulative counts by upper bound."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
        below += count
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", below))
    return buckets


_Labelled = Sequence[tuple[tuple[str, ...], Value]]


def transforms_values(
    view: WorkerView, seen: ClientsSeen, stores: Iterable[StoreStats]
) -> MetricValues:
    """Return the values of a worker that runs transforms."""
    counts, measured = view.counts, view.measured
    return {
        **_input_values(view, seen),
        **_clients(seen),
        **_transactions(measured, counts.commits, counts.aborts),
        "records_written_total": _by_label(measured.written),
        "producer_recycles_total": _one(counts.recycles),
        "fences_total": _one(counts.fences),
        "unknown_outcomes_total": _one(counts.unknown_outcomes),
        "late_records_total": [(tuple(place), count) for place, count in view.late.items()],
        "keyless_records_total": [(tuple(place), n) for place, n in view.keyless.items()],
        "passed_over_records_total": _one(counts.passed_over),
        "closed_by_clock_total": _one(counts.closed_by_clock),
        "held_records": _one(counts.held),
        "matched_topics": [((pattern,), count) for pattern, count in view.matched.items()],
        "upstream_tasks_missing": _one(
            len({missing for task in view.tasks for missing in task.missing})
        ),
        "restore_records": _one(counts.restoring),
        **_calls(view.calls),
        **_stores(stores),
    }


def tables_values(view: WorkerView, seen: ClientsSeen) -> MetricValues:
    """Return the values of a table writer."""
    counts, measured = view.counts, view.measured
    return {
        **_input_values(view, seen),
        **_clients(seen),
        "rows_written_total": _by_label(measured.written),
        "write_seconds": _one(measured.commit_seconds),
        "write_rows": _one(measured.transaction_records),
        "fences_total": _one(counts.fences),
        "database_retries_total": _one(counts.database_retries),
    }


def relay_values(view: RelayView, seen: ClientsSeen) -> MetricValues:
    """Return the values of an outbox relay."""
    counts, measured = view.counts, view.measured
    states = Counter("running" if runs else "recovering" for runs in view.shards.values())
    figures: dict[str, _Labelled] = {
        **_clients(seen),
        **_transactions(measured, counts.commits, counts.aborts),
        "records_written_total": _by_label(measured.written),
        "producer_recycles_total": _one(counts.recycles),
        "fences_total": _one(counts.fences),
        "unknown_outcomes_total": _one(counts.unknown_outcomes),
        "database_retries_total": _one(counts.database_retries),
        "outbox_refused_total": _one(counts.refused),
        "outbox_unreadable_total": _one(counts.unreadable),
        "tasks": _by_label(states),
    }
    if view.backlog is not None:
        backlog = view.backlog
        known = {
            "outbox_backlog_messages": backlog.messages,
            "outbox_backlog_seconds": backlog.oldest_seconds,
            "outbox_backlog_bytes": backlog.log_bytes,
        }
        figures |= {name: _one(value) for name, value in known.items() if value is not None}
    return figures


def _input_values(view: WorkerView, seen: ClientsSeen) -> MetricValues:
    counts: WorkerCounts = view.counts
    return {
        "records_read_total": _by_label(view.measured.read),
        "dead_letters_total": _one(counts.dead_letters),
        "retries_total": _one(counts.retries),
        "skipped_records_total": _one(counts.skipped),
        "tasks": _by_label(Counter(task.state for task in view.tasks)),
        "rebalances_total": _one(seen.rebalances),
        **_lag(view.tasks, seen),
    }


def _lag(tasks: Iterable[TaskView], seen: ClientsSeen) -> MetricValues:
    lag, largest, held_back = Counter[str](), Counter[str](), Counter[str]()
    for task in tasks:
        for partition, read_to in task.read_to.items():
            ends = seen.ends.get(partition)
            if ends is None:
                continue
            behind = max(0, ends.stable - read_to)
            lag[partition.topic] += behind
            largest[partition.topic] = max(largest[partition.topic], behind)
            held_back[partition.topic] += max(0, ends.last - max(ends.stable, read_to))
    return {
        "lag_records": _by_label(lag),
        "largest_lag_records": _by_label(largest),
        "held_back_records": _by_label(held_back),
    }


def _transactions(measured: MeasuresSnapshot, commits: int, aborts: int) -> MetricValues:
    return {
        "transactions_total": [(("committed",), commits), (("aborted",), aborts)],
        "commit_seconds": _one(measured.commit_seconds),
        "transaction_seconds": _one(measured.transaction_seconds),
        "transaction_records": _one(measured.transaction_records),
    }


def _calls(calls: Mapping[str, CallSnapshot]) -> MetricValues:
    found = sorted(calls.items())
    return {
        "calls_in_flight": [((step,), figures.in_flight) for step, figures in found],
        "calls_waiting": [((step,), figures.waiting) for step, figures in found],
        "call_seconds": [((step,), figures.seconds) for step, figures in found],
        "call_timeouts_total": [((step,), figures.timeouts) for step, figures in found],
        "call_retries_total": [((step,), figures.retries) for step, figures in found],
    }


def _stores(stores: Iterable[StoreStats]) -> MetricValues:
    size, keys = Counter[str](), Counter[str]()
    for store in stores:
        size[store.store] += store.disk_bytes + store.memory_bytes
        keys[store.store] += store.keys
    return {"store_bytes": _by_label(size), "store_keys": _by_label(keys)}


def _clients(seen: ClientsSeen) -> MetricValues:
    clients = sorted(seen.clients.items())
    round_trips = [
        (k, c.round_trip_seconds) for k, c in clients if c.round_trip_seconds is not None
    ]
    return {
        **({"client_round_trip_seconds": _by_label(dict(round_trips))} if round_trips else {}),
        "client_disconnects_total": [((kind,), c.disconnects) for kind, c in clients],
        "client_request_timeouts_total": [((kind,), c.timeouts) for kind, c in clients],
        "client_throttled_seconds_total": [((k,), c.throttled_seconds) for k, c in clients],
        "client_queued_bytes": [((kind,), c.queued_bytes) for kind, c in clients],
    }


def _one(value: Value) -> _Labelled:
    return [((), value)]


def _by_label(values: Mapping[str, float]) -> _Labelled:
    return [((label,), value) for label, value in sorted(values.items())]


_WAITING = {
    TaskState.ASSIGNED.value: ("restoring", "restore their state"),
    TaskState.RECOVERING.value: ("recovering", "init their transactional id again"),
    TaskState.FENCED.value: ("fenced", "were fenced, and may have a successor"),
    "unclaimed": ("unclaimed", "are not claimed in the database yet"),
    "in_doubt": ("unclaimed", "are claimed again: their last write got no answer"),
}


class OpenTransactions:
    """Detects partitions whose last stable offset an open transaction has held back for long.

    Args:
        limit_seconds: time in which a healthy transaction ends.
        clock: monotonic, in seconds.
    """

    def __init__(self, limit_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._since: dict[TopicPartition, tuple[int, float]] = {}

    def look(
        self, read_to: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, Ends]
    ) -> dict[TopicPartition, float]:
        """Return the seconds for which partitions have been held back, if beyond the limit.

        Args:
            read_to: next offset to read, by partition.
            ends: last stable offset and end offset, by partition.
        """
        now = self._clock()
        waiting = {
            partition: ends[partition].stable
            for partition, offset in read_to.items()
            if partition in ends and offset >= ends[partition].stable < ends[partition].last
        }
        self._since = {
            partition: (stable, since if known == stable else now)
            for partition, stable in waiting.items()
            for known, since in [self._since.get(partition, (None, now))]
        }
        return {
            partition: now - since
            for partition, (_, since) in self._since.items()
            if now - since > self._limit_seconds
        }


def worker_reasons(view: WorkerView, seen: ClientsSeen, open_: OpenTransactions) -> list[Reason]:
    """Return the reasons that a worker is not ready."""
    reasons: list[Reason] = []
    if not view.was_assigned:
        reasons.append(Reason("unassigned", "the group has not assigned partitions yet"))
    if view.unavailable is not None:
        reasons.append(Reason("unavailable", view.unavailable))
    for state, (code, what) in _WAITING.items():
        if names := [task.name for task in view.tasks if task.state == state]:
            left = f"; {view.counts.restoring} changelog records are left"
            listed = _listed(names)
            reasons.append(Reason(code, f"{listed} {what}{left if code == 'restoring' else ''}"))
    if waits := [task for task in view.tasks if task.is_held]:
        missing = sorted({name for task in waits for name in task.missing})
        reasons.append(
            Reason(
                "upstream_missing",
                f"{_listed(task.name for task in waits)} hold{'s' * (len(waits) == 1)} stream "
                f"time: no watermark has come from {_listed(missing)}. Run workers for them, of "
                f"this version",
            )
        )
    read_to = {p: offset for task in view.tasks for p, offset in task.read_to.items()}
    if held := open_.look(read_to, seen.ends):
        longest = max(held.values())
        reasons.append(
            Reason(
                "held_back",
                f"{_listed(sorted(map(str, held)))} {'is' if len(held) == 1 else 'are'} held back "
                f"by an open transaction of a producer, for {longest:.0f} s; `eosframework txn "
                f"hanging` names it",
            )
        )
    return reasons


def relay_reasons(view: RelayView, seen: ClientsSeen) -> list[Reason]:
    """Return the reasons that a relay is not ready; a standby relay is ready."""
    reasons: list[Reason] = []
    if view.unavailable is not None:
        reasons.append(Reason("unavailable", view.unavailable))
    elif not view.shards and not view.stands_by:
        reasons.append(Reason("unassigned", "no shard was taken over yet"))
    if out := [f"shard {number}" for number, runs in view.shards.items() if not runs]:
        reasons.append(Reason("recovering", f"{_listed(out)} init their transactional id again"))
    return reasons


def _listed(names: Iterable[str], most: int = 5) -> str:
    names = list(names)
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def worker_status(view: WorkerView, seen: ClientsSeen) -> Mapping[str, Any]:
    """Return a worker's tasks, each with its partitions' positions and lag, and late records."""
    return {
        "tasks": [
            {
                "task": task.name,
                "state": task.state,
                "stream_time": task.stream_time,
                "waits_for": list(task.missing),
                "partitions": [
                    _partition_status(partition, offset, seen.ends.get(partition))
                    for partition, offset in task.read_to.items()
                ],
            }
            for task in view.tasks
        ],
        "records": view.counts.records,
        "commits": view.counts.commits,
        "aborts": view.counts.aborts,
        "recycles": view.counts.recycles,
        "fences": view.counts.fences,
        "restoring": view.counts.restoring,
        "passed_over": view.counts.passed_over,
        "closed_by_clock": view.counts.closed_by_clock,
        "held": view.counts.held,
        "keyless": [
            {"step": place.step, "topic": place.topic, "records": count}
            for place, count in sorted(view.keyless.items())
        ],
        "late": [
            {"step": place.step, "topic": place.topic, "records": count}
            for place, count in sorted(view.late.items())
        ],
    }


def relay_status(view: RelayView, seen: ClientsSeen) -> Mapping[str, Any]:
    """Return a relay's shards, each with whether it is in service."""
    return {
        "shards": {str(number): runs for number, runs in view.shards.items()},
        "stands_by": view.stands_by,
        "messages": view.counts.messages,
        "backlog": None if view.backlog is None else asdict(view.backlog),
    }


def _partition_status(
    partition: TopicPartition, read_to: int, ends: Ends | None
) -> Mapping[str, Any]:
    return {
        "partition": str(partition),
        "read_to": read_to,
        "lag": None if ends is None else max(0, ends.stable - read_to),
        "held_back": None if ends is None else max(0, ends.last - max(ends.stable, read_to)),
    }


_VIEW_SECONDS = 0.5
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
            self._due = self._clock() + _VIEW_SECONDS
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
        return Answer(HTTPStatus.OK, Text(self._exposition.text(), _CONTENT_TYPE))

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
