"""How many records are run before the clock is looked at again."""

from __future__ import annotations

SLICE_SECONDS = 0.02
"""How long a slice of a batch should take: after each the clock is looked at."""

SLICE_RECORDS = 10_000
"""More are never in one slice."""

FIRST_RECORDS = 100
"""Of which nothing is known yet."""

REMEMBERED = 0.75
"""Share of what is known that a new slice leaves."""

_LEAST_SECONDS = 1e-7


class SliceSize:
    """Chooses sizes that take about `SLICE_SECONDS`, by what the last records took.

    It goes by their mean. Where other programs use the processor, a slice now and then stands
    still for longer than it works; going by the longest, all others would be of a few records,
    and to begin and end a slice costs more than these.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._records = 0.0

    def limit(self) -> int:
        """Return the most records of the next slice."""
        if not self._records:
            return FIRST_RECORDS
        return max(1, min(SLICE_RECORDS, int(SLICE_SECONDS * self._records / self._seconds)))

    def took(self, seconds: float, records: int) -> None:
        """Note how long a slice took."""
        self._seconds = self._seconds * REMEMBERED + max(seconds, _LEAST_SECONDS * records)
        self._records = self._records * REMEMBERED + records
