"""Ratios that must not get worse, and when a measurement says that one has.

A ratio is of two costs that the same process measured right after each other, or of the CPU time of
two programs in the same round, so it means the same on a slower or busier machine. It has fallen
only if the whole interval of its median lies on the wrong side: noise alone fails nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.intervals import Interval, bootstrap_median


class FloorMissed(Exception):
    """Ratios that fell; the message names each with what was expected."""


@dataclass(frozen=True)
class Limit:
    """Limit of a ratio of costs.

    Args:
        name: of what is measured.
        beside: what it is compared with.
        most: the largest ratio; above what was measured when it was set.
    """

    name: str
    beside: str
    most: float


@dataclass(frozen=True)
class Finding:
    """The measurement for a limit."""

    limit: Limit
    interval: Interval

    @property
    def holds(self) -> bool:
        """True if the ratio may be within its limit."""
        return self.interval.low <= self.limit.most


def judge(limit: Limit, ratios: Sequence[float]) -> Finding:
    """Tell what ratios of alternated measurements mean for a limit."""
    return Finding(limit, bootstrap_median(ratios))


def require_all(findings: Sequence[Finding]) -> None:
    """Refuse ratios that fell.

    Raises:
        FloorMissed: at least one did.
    """
    if missed := [finding for finding in findings if not finding.holds]:
        told = "; ".join(
            f"{found.limit.name} costs {found.interval} times {found.limit.beside}, "
            f"allowed are {found.limit.most:g}"
            for found in missed
        )
        raise FloorMissed(f"{told}. Find what got dearer, or raise the limit with a reason")
