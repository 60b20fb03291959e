"""The comparison of two worlds, by the number of occurrences of each record and row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Contents = Mapping[str, Counter[bytes]]
"""By topic or table: the number of occurrences of each record or row."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One topic or table in both worlds.

    Args:
        expected: number of records or rows in the live world.
        missing: those missing in the backfilled world.
        extra: those only in the backfilled world.
    """

    name: str
    expected: int
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        """True if both worlds have the same records or rows, equally often."""
        return not self.missing and not self.extra


def compare(backfilled: Contents, live: Contents) -> list[Comparison]:
    """Return the comparison of each topic and table, by name."""
    return [
        Comparison(
            name,
            live[name].total(),
            (live[name] - backfilled[name]).total(),
            (backfilled[name] - live[name]).total(),
        )
        for name in sorted({*backfilled, *live})
    ]


def counts(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """Return the totals over all topics and tables."""
    return {
        "compared": sum(one.expected for one in comparisons),
        "missing": sum(one.missing for one in comparisons),
        "extra": sum(one.extra for one in comparisons),
    }
