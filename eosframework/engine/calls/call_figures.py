"""Figures of the calls of a step, for metrics.

The event loop writes them, and the main thread reads them: each is one number or list, so a reader
meets at most the value before the last change.
"""

from __future__ import annotations

from dataclasses import dataclass

from eosframework.engine.histograms import SECONDS, Histogram, HistogramSnapshot


@dataclass(frozen=True, slots=True)
class CallSnapshot:
    """A snapshot of the figures of a step.

    Args:
        in_flight: attempts that run.
        waiting: calls that were begun for records, and do not run now.
        seconds: the durations of ended attempts.
        timeouts: attempts that outlasted their timeout.
        retries: further attempts at calls that failed.
    """

    in_flight: int
    waiting: int
    seconds: HistogramSnapshot
    timeouts: int
    retries: int


class CallFigures:
    """The figures of one step.

    Attributes:
        wanted: calls that have neither a result nor an error, and were not dropped.
        in_flight: attempts that run.
        timeouts: see `CallSnapshot`.
        retries: likewise.
        seconds: likewise.
    """

    def __init__(self) -> None:
        self.wanted = self.in_flight = self.timeouts = self.retries = 0
        self.seconds = Histogram(SECONDS)

    def snapshot(self) -> CallSnapshot:
        """Return the figures so far."""
        in_flight = self.in_flight
        waiting = max(0, self.wanted - in_flight)
        return CallSnapshot(
            in_flight, waiting, self.seconds.snapshot(), self.timeouts, self.retries
        )


NO_CALLS = CallFigures().snapshot()
"""The figures of a step that has called for nothing yet."""
