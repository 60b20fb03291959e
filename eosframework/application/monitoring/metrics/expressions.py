"""The conditions of alerts: as PromQL for Prometheus, and over samples that a process keeps.

Only what `alerts` needs exists here. Rates and increases count a counter that was reset from 0, as
Prometheus does; they do not extrapolate to the borders of their period.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from eosframework.application.monitoring.metrics.catalogue import PREFIX

Labels = tuple[tuple[str, str], ...]
"""Names and values of labels, sorted."""

Found = Mapping[Labels, float]
"""Values by the labels of their series."""

UP = "up"
"""The metric that Prometheus makes itself: 1 if a process answered."""

JOB = "eosframework"
"""Name of the scrape job."""


def scraped(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield name, labels and value of each sample of eosframework in an answer to `/metrics`.

    Raises:
        ValueError: the text is not in Prometheus' format.
    """
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(PREFIX):
                yield sample.name.removeprefix(PREFIX), sample.labels, sample.value


class Samples(Protocol):
    """Samples of the metrics of several processes."""

    @property
    def now(self) -> float:
        """Time of the newest sample, in seconds."""
        ...

    def latest(self, metric: str) -> Iterable[tuple[Labels, float]]:
        """Return each series of a metric with its value in its process's newest sample."""
        ...

    def series(self, metric: str, since: float) -> Iterable[tuple[Labels, Sequence[Sample]]]:
        """Return each series of a metric with its samples from a time on, the oldest first."""
        ...


Sample = tuple[float, float]
"""Time in seconds, and value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, for each process or summed up.

    Args:
        name: without the prefix.
        by: labels by which it is summed up; None: it is not.
        over: `rate`, `increase`, or empty for the newest value.
        minutes: period of a rate or an increase.
        where: a label and its value that series must have.
    """

    name: str
    by: tuple[str, ...] | None = None
    over: str = ""
    minutes: int = 0
    where: tuple[str, str] | None = None

    @property
    def promql(self) -> str:
        """The expression for Prometheus."""
        where = self.where if self.name != UP else ("job", JOB)
        chosen = "" if where is None else f'{{{where[0]}="{where[1]}"}}'
        text = f"{self.name if self.name == UP else PREFIX + self.name}{chosen}"
        if self.over:
            text = f"{self.over}({text}[{self.minutes}m])"
        return text if self.by is None else f"sum by ({', '.join(self.by)}) ({text})"

    def found(self, samples: Samples) -> Found:
        """Return the values now."""
        sums: dict[Labels, float] = defaultdict(float)
        for labels, value in self._each(samples):
            if self.where is None or self.where in labels:
                sums[labels if self.by is None else kept(labels, self.by)] += value
        return dict(sums)

    def _each(self, samples: Samples) -> Iterable[tuple[Labels, float]]:
        if not self.over:
            return samples.latest(self.name)
        found = samples.series(self.name, samples.now - self.minutes * 60)
        return [(labels, _over(self.over, taken)) for labels, taken in found if len(taken) > 1]


def kept(labels: Labels, by: Iterable[str]) -> Labels:
    """Return the labels with these names only."""
    return tuple((name, value) for name, value in labels if name in by)


def _over(over: str, taken: Sequence[Sample]) -> float:
    rise = increase(value for _, value in taken)
    return rise if over == "increase" else rise / max(taken[-1][0] - taken[0][0], 1e-9)


def increase(values: Iterable[float]) -> float:
    """Return the rise of a counter, which begins at 0 when its process starts again."""
    rise, before = 0.0, None
    for value in values:
        if before is not None:
            rise += value - before if value >= before else value
        before = value
    return rise


@dataclass(frozen=True, slots=True)
class Slope:
    """The change of a sum per second, by linear regression."""

    of: Metric
    minutes: int

    @property
    def promql(self) -> str:
        """The expression for Prometheus."""
        return f"deriv({self.of.promql}[{self.minutes}m:1m])"

    def found(self, samples: Samples) -> Found:
        """Return the values now."""
        sums: dict[Labels, dict[float, float]] = {}
        for labels, taken in samples.series(self.of.name, samples.now - self.minutes * 60):
            line = sums.setdefault(kept(labels, self.of.by or ()), defaultdict(float))
            for at, value in taken:
                line[at] += value
        return {labels: _slope(list(line.items())) for labels, line in sums.items() if line}


def _slope(points: Sequence[Sample]) -> float:
    mean_at = sum(at for at, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * (v - mean) for at, v in points) / spread if spread else 0.0


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of a histogram of all processes of an application."""

    quantile: float
    metric: str
    minutes: int

    @property
    def _rates(self) -> Metric:
        return Metric(f"{self.metric}_bucket", ("application", "le"), "rate", self.minutes)

    @property
    def promql(self) -> str:
        """The expression for Prometheus."""
        return f"histogram_quantile({self.quantile}, {self._rates.promql})"

    def found(self, samples: Samples) -> Found:
        """Return the values now; a histogram without observations has none."""
        histograms: dict[Labels, dict[float, float]] = defaultdict(dict)
        for labels, rate in self._rates.found(samples).items():
            bound = float(dict(labels)["le"])
            histograms[kept(labels, ("application",))][bound] = rate
        values = {labels: quantile_of(self.quantile, b) for labels, b in histograms.items()}
        return {labels: value for labels, value in values.items() if value is not None}


def quantile_of(quantile: float, buckets: Mapping[float, float]) -> float | None:
    """Return a quantile of cumulative counts by upper bound; None: there are no observations."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    below_bound, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= quantile * total:
            if bound == float("inf"):
                return below_bound
            inside = buckets[bound] - below
            share = (quantile * total - below) / inside if inside else 0.0
            return below_bound + (bound - below_bound) * share
        below_bound, below = bound, buckets[bound]
    return below_bound


Value = Metric | Slope | Quantile

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
}


@dataclass(frozen=True, slots=True)
class Compared:
    """The values that compare so with a limit.

    Args:
        sign: `>` or `==`.
        limit: a number, or a share of the value with the same labels.
    """

    value: Value
    sign: str
    limit: float
    share_of: Value | None = None

    @property
    def promql(self) -> str:
        """The expression for Prometheus."""
        limit = f"{self.limit:g}"
        if self.share_of is not None:
            limit += f" * {self.share_of.promql}"
        return f"{self.value.promql} {self.sign} {limit}"

    def found(self, samples: Samples) -> Found:
        """Return the values that hold now."""
        is_so = _COMPARISONS[self.sign]
        values = self.value.found(samples)
        if self.share_of is None:
            return {labels: v for labels, v in values.items() if is_so(v, self.limit)}
        wholes = self.share_of.found(samples)
        return {
            labels: value
            for labels, value in values.items()
            if labels in wholes and is_so(value, self.limit * wholes[labels])
        }


@dataclass(frozen=True, slots=True)
class Both:
    """The values of the first condition for whose labels the second one holds, or does not.

    Args:
        word: `and` or `unless`.
    """

    first: Compared
    word: str
    second: Compared

    @property
    def promql(self) -> str:
        """The expression for Prometheus."""
        return f"{self.first.promql}\n{self.word} {self.second.promql}"

    def found(self, samples: Samples) -> Found:
        """Return the values that hold now."""
        others = self.second.found(samples)
        wanted = self.word == "and"
        found = self.first.found(samples)
        return {labels: v for labels, v in found.items() if (labels in others) is wanted}


Condition = Compared | Both
