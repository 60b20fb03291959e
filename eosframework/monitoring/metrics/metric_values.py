"""Metric values from snapshots of a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from eosframework.kafka.client.statistics import ClientsSeen
from eosframework.monitoring.metrics.catalogue import MetricValues, Value
from eosframework.outbox.relay import RelayView
from eosframework.processing.measurements import MeasuresSnapshot
from eosframework.processing.stores.state_ports import StoreStats
from eosframework.processing.worker_plan import WorkerCounts
from eosframework.processing.worker_views import TaskView, WorkerView

Labelled = Sequence[tuple[tuple[str, ...], Value]]


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
        "upstream_tasks_missing": _one(
            len({missing for task in view.tasks for missing in task.missing})
        ),
        "restore_records": _one(counts.restoring),
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
    figures: dict[str, Labelled] = {
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


def _one(value: Value) -> Labelled:
    return [((), value)]


def _by_label(values: Mapping[str, float]) -> Labelled:
    return [((label,), value) for label, value in sorted(values.items())]
