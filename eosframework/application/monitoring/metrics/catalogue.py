"""Every metric, declared once in `metrics.yaml`: the source of documentation and exposition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from eosframework.engine.histograms import HistogramSnapshot
from eosframework.serialization.yaml_text import read_table

PREFIX = "eosframework_"


class Kind(StrEnum):
    """Metric types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Process(StrEnum):
    """Kinds of processes; each kind has its own set of metrics."""

    TRANSFORMS = "transforms"
    TABLES = "tables"
    RELAY = "relay"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Args:
        name: without the prefix; ends in the unit, and in `_total` after that for a counter.
        what: description in one sentence.
        normal: the normal values.
        otherwise: the next step if the values differ.
        labels: in addition to `application`, which all metrics have.
        exposed_by: the processes that expose the metric.
    """

    name: str
    kind: Kind
    what: str
    normal: str
    otherwise: str
    labels: tuple[str, ...] = ()
    exposed_by: tuple[Process, ...] = tuple(Process)

    @property
    def full_name(self) -> str:
        """The name in Prometheus, with the prefix."""
        return PREFIX + self.name


Value = float | HistogramSnapshot

MetricValues = Mapping[str, Sequence[tuple[tuple[str, ...], Value]]]
"""Label values and value of each known metric, by the metric's name."""

METRICS = read_table(
    "eosframework.application.monitoring.metrics", "metrics.yaml", tuple[Metric, ...]
)
