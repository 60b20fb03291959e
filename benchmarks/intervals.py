"""The uncertainty of a median: a bootstrap interval."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with the interval that holds it with `CONFIDENCE`."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def bootstrap_median(values: Sequence[float]) -> Interval:
    """Resample `values` with replacement and take the quantiles of the medians (seeded)."""
    source = random.Random(len(values))
    medians = sorted(
        statistics.median(source.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    tail = (1 - CONFIDENCE) / 2
    return Interval(
        statistics.median(values),
        medians[int(tail * RESAMPLES)],
        medians[int((1 - tail) * RESAMPLES) - 1],
    )
