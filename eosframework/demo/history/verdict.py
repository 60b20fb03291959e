"""What two worlds are compared by: how often each record and row is in one and in the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Contents = Mapping[str, Counter[bytes]]
"""By topic or table: each record or row, and how often it is there."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One topic or table in both worlds.

    Args:
        expected: how many there are where everything was processed live.
        missing: how many of them are not there where history was backfilled.
        extra: how many are there only.
    """

    name: str
    expected: int
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        """Whether both have the same, each as often."""
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
    """Return what a verdict counts of all topics and tables together."""
    return {
        "compared": sum(one.expected for one in comparisons),
        "missing": sum(one.missing for one in comparisons),
        "extra": sum(one.extra for one in comparisons),
    }
