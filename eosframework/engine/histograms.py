"""Histograms of measured values: plain numbers, without locks."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds of durations, in seconds."""


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """A snapshot of a histogram.

    Args:
        bounds: inclusive upper bounds of the buckets, ascending.
        counts: values in each bucket; the last count is of values above all bounds.
        total: the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """A histogram."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def snapshot(self) -> HistogramSnapshot:
        """Return the counts so far."""
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._total)
