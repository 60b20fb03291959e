"""Charts as numbers: lines over time, which templates draw as SVG.

Internal: no module here is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10

from eosframework.operations.console.memory import Point

WIDTH, HEIGHT = 600.0, 120.0
"""Size of the area of a chart, in the picture's units."""

GAP_SHARE = 0.04
"""Points that are further apart than this share of the period have no line between them."""

_LONGEST_GAP_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart.

    Args:
        name: for display.
        path: of an SVG path; empty: no value is known.
        area: the path of the area below; empty as well.
        latest: the newest value; None: not known.
        largest: the largest value; None likewise.
    """

    name: str
    path: str
    area: str
    latest: float | None
    largest: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Args:
        title: for display.
        unit: of its values; empty: they are numbers.
        top: value at the upper border.
        about: one sentence for screen readers.
    """

    title: str
    unit: str
    lines: Sequence[Line]
    top: float
    start: datetime
    end: datetime
    about: str

    @property
    def is_known(self) -> bool:
        """True if any value is known."""
        return any(line.path for line in self.lines)


_CHARTS = (
    ("Throughput", "records/s", {"read": "read", "written": "written"}),
    ("Lag", "offsets", {"lag": "lag"}),
    ("Commit latency", "s", {"p50": "commit_median", "p99": "commit_slow"}),
    ("Errors a minute", "", {"failed records": "failed", "aborted transactions": "aborts"}),
)


def charts_of(points: Sequence[Point], now: float, seconds: float) -> list[Chart]:
    """Return the charts of the overview.

    Args:
        points: the oldest first.
        now: time of the right border, in seconds since the epoch.
        seconds: the period; a shorter memory fills only the right part.
    """
    return [_chart(title, unit, names, points, now, seconds) for title, unit, names in _CHARTS]


def _chart(
    title: str,
    unit: str,
    names: dict[str, str],
    points: Sequence[Point],
    now: float,
    seconds: float,
) -> Chart:
    start = now - seconds
    shown = [point for point in points if point.at >= start]
    values = {
        name: [(p.at, v) for p in shown if (v := getattr(p, field)) is not None]
        for name, field in names.items()
    }
    top = rounded_up(max((v for found in values.values() for _, v in found), default=0.0))
    lines = [_line(name, found, start, seconds, top) for name, found in values.items()]
    known = (
        f"{line.name} now {line.latest:,.4g}, at most {line.largest:,.4g}"
        for line in lines
        if line.latest is not None and line.largest is not None
    )
    about = f"{title} of the last {_named(seconds)}: {'; '.join(known) or 'not known yet'}"
    left, right = datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(now, UTC)
    return Chart(title, unit, lines, top, left, right, about)


def _line(
    name: str, found: Sequence[tuple[float, float]], start: float, seconds: float, top: float
) -> Line:
    if not found:
        return Line(name, "", "", None, None)
    runs: list[list[tuple[float, float]]] = []
    gap = max(seconds * GAP_SHARE, _LONGEST_GAP_SECONDS)
    for number, (at, value) in enumerate(found):
        if number == 0 or at - found[number - 1][0] > gap:
            runs.append([])
        x, y = (at - start) / seconds * WIDTH, HEIGHT - value / top * HEIGHT
        runs[-1].append((round(x, 1), round(y, 1)))
    path = " ".join("M" + " L".join(f"{x},{y}" for x, y in run) for run in runs)
    area = " ".join(
        f"M{run[0][0]},{HEIGHT} "
        + " ".join(f"L{x},{y}" for x, y in run)
        + f" L{run[-1][0]},{HEIGHT} Z"
        for run in runs
    )
    return Line(name, path, area, found[-1][1], max(value for _, value in found))


def rounded_up(value: float) -> float:
    """Return the least of 1, 2 and 5 times a power of ten that is not smaller; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    factor = next(f for f in (1, 2, 5, 10) if value <= f * power * (1 + 1e-9))
    return factor * power


def _named(seconds: float) -> str:
    return f"{ceil(seconds / 60)} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
