"""Assignment of markers to transactions: a marker names a producer, not a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatedMarker:
    """A marker in a partition; times in ms since 1970."""

    producer_id: int | None
    time_ms: int
    committed: bool


@dataclass(frozen=True, slots=True)
class Span:
    """The time span of a transaction's markers; times in ms since 1970.

    Args:
        from_ms: the start of the transaction.
        decided_ms: the time of its decision; None: the record of that is gone, or there is none.
        complete_ms: the time when all markers were written; None: they may not be yet.
        committed: the decision; None: it is not decided, so it has no marker.
    """

    producer_id: int | None
    from_ms: int
    decided_ms: int | None
    complete_ms: int | None
    committed: bool | None

    def distance_ms(self, time_ms: int) -> int:
        """Return how far a time lies outside the span; 0: inside."""
        earliest = self.decided_ms if self.decided_ms is not None else self.from_ms
        after = time_ms - self.complete_ms if self.complete_ms is not None else 0
        return max(earliest - time_ms, after, 0)


def match(
    markers: Sequence[DatedMarker], spans: Mapping[int, Span], skew_ms: int
) -> list[int | None]:
    """Return for each marker the key of the transaction that it ended; None: of none of these.

    A coordinator decides, has the markers written and only then completes, so that a marker's time
    lies in its transaction's span. Markers outside all spans, because the clocks of brokers differ,
    are assigned afterwards to the nearest transaction without a marker.

    Args:
        markers: of one partition, in the order of its log.
        spans: of the transactions that involve the partition, in their order.
        skew_ms: how far outside a span a marker may lie.
    """
    chosen: list[int | None] = [None] * len(markers)
    free = {key: span for key, span in spans.items() if span.committed is not None}
    for allowed_ms in (0, skew_ms):
        for number, marker in enumerate(markers):
            if chosen[number] is not None:
                continue
            near = [
                (span.distance_ms(marker.time_ms), key)
                for key, span in free.items()
                if span.committed == marker.committed and span.producer_id == marker.producer_id
            ]
            if near and min(near)[0] <= allowed_ms:
                chosen[number] = min(near)[1]
                del free[min(near)[1]]
    return chosen
