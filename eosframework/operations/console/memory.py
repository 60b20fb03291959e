"""Memory of the console: samples of the processes' metrics, and points of the charts.

Both are bounded in time and in number, and begin with the console's start. Alerts need an hour of
samples; the charts show minutes from fine points and hours from coarse ones.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eosframework.application.monitoring.metrics.alerts import ALERTS, metrics_of
from eosframework.application.monitoring.metrics.expressions import (
    UP,
    Labels,
    Metric,
    Quantile,
    Sample,
    Value,
    scraped,
)
from eosframework.serialization.bounds import SERIES

SAMPLE_SECONDS = 10.0
"""Interval of samples."""

SAMPLES = int(3600 / SAMPLE_SECONDS) + 2
"""Number of samples that are kept of a process; alerts look back for an hour."""

FINE_POINTS, COARSE_POINTS = 180, 1440
"""Number of points that are kept: of half an hour, and of a day with one for each minute."""

_CHARTED: Mapping[str, Value] = {
    "read": Metric("records_read_total", (), "rate", 1),
    "written": Metric("records_written_total", (), "rate", 1),
    "commit_median": Quantile(0.5, "commit_seconds", 1),
    "commit_slow": Quantile(0.99, "commit_seconds", 1),
    "dead_letters": Metric("dead_letters_total", (), "increase", 1),
    "retries": Metric("retries_total", (), "increase", 1),
    "skipped": Metric("skipped_records_total", (), "increase", 1),
    "aborts": Metric("transactions_total", (), "increase", 1, ("outcome", "aborted")),
}
"""Values of a point from the metrics, by their names there."""

KEPT = {name for alert in ALERTS for name in metrics_of(alert.condition)} | {
    "records_read_total",
    "records_written_total",
    "retries_total",
    "skipped_records_total",
}
"""Names of the metrics that are kept."""


@dataclass(frozen=True, slots=True)
class Point:
    """The values of a moment; None: not known.

    Args:
        at: seconds since the epoch.
        read: records read for each second.
        written: records written for each second.
        lag: unread offsets of all tasks.
        commit_median: of the seconds of commits in the last minute.
        commit_slow: their 99th percentile.
        failed: records that became dead letters, were retried or skipped in the last minute.
        aborts: transactions that were aborted in the last minute.
    """

    at: float
    read: float | None = None
    written: float | None = None
    lag: float | None = None
    commit_median: float | None = None
    commit_slow: float | None = None
    failed: float | None = None
    aborts: float | None = None


class _Process:
    """The samples of one process, as columns of one row for each sample."""

    def __init__(self) -> None:
        self.columns: dict[tuple[str, Labels], int] = {}
        self.rows: deque[tuple[float, array[float]]] = deque(maxlen=SAMPLES)

    def add(self, at: float, values: Mapping[tuple[str, Labels], float]) -> None:
        for key in values:
            if key not in self.columns and len(self.columns) < SERIES.value:
                self.columns[key] = len(self.columns)
        row = array("d", [math.nan]) * len(self.columns)
        for key, value in values.items():
            if (column := self.columns.get(key)) is not None:
                row[column] = value
        self.rows.append((at, row))


def _at(row: array[float], column: int) -> float | None:
    if column >= len(row) or math.isnan(row[column]):
        return None
    return row[column]


class Memory:
    """The `Samples` of the asked processes, and the points made of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: dict[str, _Process] = {}
        self._fine: deque[Point] = deque(maxlen=FINE_POINTS)
        self._coarse: deque[Point] = deque(maxlen=COARSE_POINTS)
        self._now = 0.0

    @property
    def now(self) -> float:
        """Time of the newest sample, in seconds since the epoch."""
        return self._now

    def take(self, address: str, at: float, text: str) -> None:
        """Keep a process's answer to `/metrics`."""
        values = {(UP, _labels({"instance": address})): 1.0}
        for name, labels, value in scraped(text):
            if name in KEPT:
                values[(name, _labels({**labels, "instance": address}))] = value
        self._add(address, at, values)

    def miss(self, address: str, at: float) -> None:
        """Note that a process did not answer."""
        self._add(address, at, {(UP, _labels({"instance": address})): 0.0})

    def latest(self, metric: str) -> Iterator[tuple[Labels, float]]:
        """Return each series of a metric with its value in its process's newest sample."""
        for process, columns in self._columns(metric):
            _, row = process[-1]
            for labels, column in columns:
                if (value := _at(row, column)) is not None:
                    yield labels, value

    def series(self, metric: str, since: float) -> Iterator[tuple[Labels, Sequence[Sample]]]:
        """Return each series of a metric with its samples from a time on, the oldest first."""
        for process, columns in self._columns(metric):
            rows = [(at, row) for at, row in process if at >= since]
            for labels, column in columns:
                found = [(at, value) for at, row in rows if (value := _at(row, column)) is not None]
                yield labels, found

    def add_point(self, at: float, lag: float | None, read: float | None) -> None:
        """Add a point of the charts, from the newest samples.

        Args:
            at: seconds since the epoch.
            lag: of all tasks, from Kafka; None: not known.
            read: records read for each second, from Kafka, if no process has answered.
        """
        values = {name: next(iter(v.found(self).values()), None) for name, v in _CHARTED.items()}
        failures = (values.pop("dead_letters"), values.pop("retries"), values.pop("skipped"))
        known = [value for value in failures if value is not None]
        values["read"] = values["read"] if values["read"] is not None else read
        point = Point(at, lag=lag, failed=sum(known) if known else None, **values)
        with self._lock:
            self._fine.append(point)
            if not self._coarse or at - self._coarse[-1].at >= 60:
                self._coarse.append(point)

    def points(self, *, hours: bool) -> list[Point]:
        """Return the points of the last half hour, or those of the last day."""
        with self._lock:
            return list(self._coarse if hours else self._fine)

    def _add(self, address: str, at: float, values: Mapping[tuple[str, Labels], float]) -> None:
        with self._lock:
            self._processes.setdefault(address, _Process()).add(at, values)
            self._now = max(self._now, at)

    def _columns(
        self, metric: str
    ) -> Iterator[tuple[Sequence[tuple[float, array[float]]], list[tuple[Labels, int]]]]:
        with self._lock:
            processes = [(list(p.rows), dict(p.columns)) for p in self._processes.values()]
        for rows, columns in processes:
            found = [
                (labels, column) for (name, labels), column in columns.items() if name == metric
            ]
            yield rows, found


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
