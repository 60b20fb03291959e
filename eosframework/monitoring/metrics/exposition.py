"""Prometheus' text format; the only importer of prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from eosframework.monitoring.metrics.catalogue import METRICS, Kind, Metric, MetricValues, Value
from eosframework.processing.measurements import HistogramSnapshot

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


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
