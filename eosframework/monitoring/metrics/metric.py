"""How a metric is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from eosframework.processing.measurements import HistogramSnapshot

PREFIX = "eosframework_"


class Kind(StrEnum):
    """How the values of a metric behave."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Process(StrEnum):
    """What a process does; each has its own set of metrics."""

    TRANSFORMS = "transforms"
    TABLES = "tables"
    RELAY = "relay"


WORKERS = (Process.TRANSFORMS, Process.TABLES)
PRODUCERS = (Process.TRANSFORMS, Process.RELAY)
EVERY = tuple(Process)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Args:
        name: without the prefix; a counter's ends in `_total`, and the unit comes before that.
        what: it says, in one sentence.
        normal: what to expect of it.
        otherwise: what to do when it is not so.
        labels: besides `application`, which all have.
        told_by: by which processes.
    """

    name: str
    kind: Kind
    what: str
    normal: str
    otherwise: str
    labels: tuple[str, ...] = ()
    told_by: tuple[Process, ...] = EVERY

    @property
    def full_name(self) -> str:
        """The name as Prometheus has it."""
        return PREFIX + self.name


Value = float | HistogramSnapshot

Figures = Mapping[str, Sequence[tuple[tuple[str, ...], Value]]]
"""By metric, values with those of its labels. What is not known is left out."""
