"""Timelines as numbers: places of segments and marks, which templates draw as SVG.

Internal: no module here is public.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from eosframework.operations.console.readings import TaskOwners

_WIDTH = 100.0
"""Width of the time axis, in percent: a lane is as wide as its window."""

_COLORS = 8
"""Number of classes for owners in the style sheet."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a lane.

    Args:
        x: its beginning, in percent of the lane.
        width: likewise.
        style: class in the style sheet.
    """

    x: float
    width: float
    label: str
    style: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on a lane.

    Args:
        x: its place, in percent of the lane.
        style: class in the style sheet.
    """

    x: float
    label: str
    style: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a timeline."""

    name: str
    segments: Sequence[Segment] = ()
    marks: Sequence[Mark] = ()

    @property
    def about(self) -> str:
        """Its text for screen readers."""
        return "; ".join([self.name, *(one.label for one in (*self.segments, *self.marks))])


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes between two moments; times are in UTC."""

    start: datetime
    end: datetime
    lanes: Sequence[Lane]

    @property
    def seconds(self) -> float:
        """Length of the time axis."""
        return (self.end - self.start).total_seconds()


def ownership_timeline(
    ownerships: Mapping[str, Sequence[TaskOwners]],
    began_at: datetime,
    now: datetime,
    period: timedelta = timedelta(minutes=30),
) -> Timeline:
    """Return a lane for each task, with a segment for each owner.

    Args:
        ownerships: by task, the oldest first.
        began_at: time of the first reading.
        now: the end of the timeline.
        period: its longest length.
    """
    start = max(began_at, now - period)
    span = max((now - start).total_seconds(), 1.0)
    named = sorted({o.owner for owned in ownerships.values() for o in owned if o.owner})
    styles: dict[str | None, str] = {
        name: f"owner-{number % _COLORS}" for number, name in enumerate(named)
    }
    lanes: list[Lane] = []
    for task, owned in ownerships.items():
        segments: list[Segment] = []
        for number, one in enumerate(owned):
            until = owned[number + 1].since if number + 1 < len(owned) else now
            if until <= start:
                continue
            left = max(0.0, (max(one.since, start) - start).total_seconds()) / span * _WIDTH
            right = (until - start).total_seconds() / span * _WIDTH
            label = f"{task}: {one.owner or 'no owner'} from {one.since:%H:%M:%S}"
            style = styles.get(one.owner, "owner-none")
            segments.append(Segment(left, max(0.1, right - left), label, style))
        lanes.append(Lane(task, tuple(segments)))
    return Timeline(start, now, lanes)


def transaction_timeline(transaction: Mapping[str, Any]) -> Timeline | None:
    """Return the coordinator's states and each partition's marker of a traced transaction.

    Args:
        transaction: of `txn trace --json`.

    Returns:
        None: nothing of it has a time.
    """
    states, markers = transaction["states"], transaction["markers"]
    times = [moment["time"] for moment in (*states, *markers)]
    if not times:
        return None
    start, end = min(times), max(times)
    span = max((end - start).total_seconds(), 0.001)

    def x(time: datetime) -> float:
        return (time - start).total_seconds() / span * _WIDTH

    lanes = [
        Lane(
            "coordinator",
            tuple(
                Segment(
                    x(state["time"]),
                    x(following["time"]) - x(state["time"]),
                    f"{state['state']} from {state['time']:%H:%M:%S.%f}",
                    f"state-{state['state'].lower()}",
                )
                for state, following in itertools.pairwise(states)
            ),
            tuple(Mark(x(s["time"]), str(s["state"]), "change") for s in states),
        )
    ]
    for name in _partitions(transaction):
        joined = (
            Mark(x(state["time"]), f"{name} joins", "joined")
            for state in states
            if name in map(_named, state["joined"])
        )
        ended = (
            Mark(
                x(marker["time"]),
                f"{'COMMIT' if marker['committed'] else 'ABORT'} marker at {marker['offset']}",
                "committed" if marker["committed"] else "aborted",
            )
            for marker in markers
            if _named(marker) == name
        )
        lanes.append(Lane(name, (), (*joined, *ended)))
    return Timeline(start, end, lanes)


def windows_timeline(rows: Iterable[Mapping[str, Any]]) -> Timeline | None:
    """Return a lane for each window of a key; None: the rows are no windows.

    Args:
        rows: with a window's `start`, `end` and `value`, in milliseconds since the epoch.
    """
    from eosframework.kafka.inspect.coordinators import at

    windows = [row for row in rows if {"start", "end", "value"} <= row.keys()]
    if not windows:
        return None
    first, last = min(w["start"] for w in windows), max(w["end"] for w in windows)
    span = max(last - first, 1)
    lanes = [
        Lane(
            f"{at(w['start']):%Y-%m-%d %H:%M:%S}",
            (
                Segment(
                    (w["start"] - first) / span * _WIDTH,
                    max(0.2, (w["end"] - w["start"]) / span * _WIDTH),
                    f"{at(w['start']):%H:%M:%S} to {at(w['end']):%H:%M:%S}: {w['value']}",
                    "window",
                ),
            ),
        )
        for w in windows
    ]
    return Timeline(at(first), at(last), lanes)


def _partitions(transaction: Mapping[str, Any]) -> list[str]:
    joined = [_named(p) for state in transaction["states"] for p in state["joined"]]
    return sorted({*joined, *map(_named, transaction["markers"])})


def _named(partition: Mapping[str, Any]) -> str:
    return f"{partition['topic']}[{partition['partition']}]"
