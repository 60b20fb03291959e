"""Contestants in turns: their runs so far, and what these say of the first of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contestants.work import Contestant, Unavailable
from benchmarks.measure import Speed
from benchmarks.report import Table

FEWEST_RECORDS = 20_000
"""Below that a run is over before it can be measured."""

COLUMNS = (
    "contestant",
    "version",
    "records/s, median",
    "spread",
    "CPU µs/record",
    "eosframework / it",
    "goal",
)


@dataclass
class Standing:
    """One contestant and its runs so far."""

    contestant: Contestant
    version: str
    records: int
    speeds: list[Speed] = field(default_factory=list[Speed])

    @property
    def records_per_second(self) -> list[float]:
        return [speed.records_per_second for speed in self.speeds]

    @property
    def median(self) -> float:
        return statistics.median(self.records_per_second)

    def times_slower_than(self, other: Standing) -> float:
        """Return the speed of `other` as a multiple: the median over rounds of adjacent runs."""
        pairs = zip(other.records_per_second, self.records_per_second, strict=True)
        return statistics.median(theirs / own for theirs, own in pairs)

    @property
    def cpu_microseconds(self) -> float:
        return statistics.median(speed.cpu_microseconds_per_record for speed in self.speeds)


@dataclass(frozen=True)
class Field:
    """The contestants; the first one is compared with the others.

    Args:
        goals: for the first one's speed as a multiple of others', by their names.
        absent: why others cannot, by their names.
    """

    standings: Sequence[Standing]
    goals: Mapping[str, float]
    absent: Mapping[str, str]

    def of_round(self, number: int) -> list[Standing]:
        """Return the order of a round: each begins with another one."""
        start = number % len(self.standings)
        return [*self.standings[start:], *self.standings[:start]]

    def table(self, title: str) -> Table:
        """Return a row for each contestant."""
        rows = [self._row(standing) for standing in self.standings]
        rows += [(name, reason, "", "", "", "", "") for name, reason in self.absent.items()]
        return Table(title=title, columns=COLUMNS, rows=rows)

    def data(self) -> dict[str, Any]:
        """Return every figure."""
        found = {standing.contestant.name: self._figures(standing) for standing in self.standings}
        return {"contestants": found, "absent": dict(self.absent)}

    def _row(self, standing: Standing) -> tuple[str, ...]:
        goal = self.goals.get(standing.contestant.name)
        ratio = standing.times_slower_than(self.standings[0])
        return (
            standing.contestant.name,
            standing.version,
            *figures(standing.speeds),
            "" if standing is self.standings[0] else f"{ratio:.2f}",
            f"{goal:g}" if goal else "",
        )

    def _figures(self, standing: Standing) -> dict[str, Any]:
        return {
            "version": standing.version,
            "records": standing.records,
            "records_per_second": [round(speed) for speed in standing.records_per_second],
            "median_records_per_second": round(standing.median),
            "cpu_microseconds_per_record": round(standing.cpu_microseconds, 3),
            "eosframework_ratio": round(standing.times_slower_than(self.standings[0]), 3),
        }


def figures(speeds: Sequence[Speed]) -> tuple[str, str, str]:
    """Return median, spread, and processor time of a record, as tables have them."""
    rates = [speed.records_per_second for speed in speeds]
    return (
        f"{statistics.median(rates):,.0f}",
        f"{min(rates):,.0f} to {max(rates):,.0f}",
        f"{statistics.median(speed.cpu_microseconds_per_record for speed in speeds):.2f}",
    )


def enter(contestants: Sequence[Contestant], records: int, goals: Mapping[str, float]) -> Field:
    """Prepare contestants; those that cannot take part are absent."""
    present: list[Standing] = []
    absent: dict[str, str] = {}
    for contestant in contestants:
        try:
            version = contestant.prepare()
        except Unavailable as reason:
            absent[contestant.name] = str(reason)
            continue
        share = max(FEWEST_RECORDS, int(records * contestant.share))
        present.append(Standing(contestant, version, min(records, share)))
    return Field(present, goals, absent)
