"""Pictures as numbers: places of boxes, arrows and marks, which templates draw as SVG.

Internal: no module here is public.

A layered drawing of a directed graph: columns from left to right, few crossings.
1. Arrows that close a cycle are turned around (a replay topic, for example, leads back).
2. A box is one column to the right of the rightmost box that leads to it.
3. An arrow over several columns gets a point in each of them, so that it passes between boxes.
4. The rows of a column are sorted by the mean row of the neighbours, alternately from the left and
   from the right (Sugiyama's method with barycentres).
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from eosframework.operations.console.readings import TaskOwners
from eosframework.topology.graph.description import Arrow, Box, BoxKind, Diagram

_SWEEPS = 8

Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a box: column and row, from 0."""

    column: int
    row: float


@dataclass(frozen=True, slots=True)
class Layers:
    """A layered drawing.

    Args:
        places: of the boxes.
        routes: of the edges, in their order: places from the first box to the second.
        columns: number of columns.
        rows: number of rows.
    """

    places: Mapping[str, Place]
    routes: Sequence[Sequence[Place]]
    columns: int
    rows: int


def arrange(nodes: Sequence[str], edges: Sequence[Edge]) -> Layers:
    """Return a drawing of a graph; the order of the nodes decides between equal places.

    Args:
        nodes: names, unique.
        edges: between nodes; an edge from a node to itself has no effect on places.
    """
    forward = _without_cycles(nodes, edges)
    columns = _columns(nodes, forward)
    chains = [_chain(number, edge, columns) for number, edge in enumerate(forward)]
    by_column = _rows(nodes, columns, chains)
    rows = max((len(names) for names in by_column), default=0)
    places = {
        name: Place(number, row + (rows - len(names)) / 2)
        for number, names in enumerate(by_column)
        for row, name in enumerate(names)
    }
    routes: list[list[Place]] = []
    for edge, turned, chain in zip(edges, forward, chains, strict=True):
        route = [places[name] for name in chain]
        routes.append(route if edge == turned else route[::-1])
    return Layers({name: places[name] for name in nodes}, routes, len(by_column), rows)


def _without_cycles(nodes: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    followers: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        followers[source].append(target)
    finished: set[str] = set()
    on_path: set[str] = set()
    turned: set[Edge] = set()
    for start in nodes:
        todo: list[tuple[str, int]] = [(start, 0)]
        while todo:
            name, done = todo.pop()
            if name in finished:
                continue
            on_path.add(name)
            if done == len(followers[name]):
                on_path.discard(name)
                finished.add(name)
                continue
            todo.append((name, done + 1))
            follower = followers[name][done]
            if follower in on_path:
                turned.add((name, follower))
            else:
                todo.append((follower, 0))
    return [(b, a) if (a, b) in turned else (a, b) for a, b in edges]


def _columns(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    waiting = {name: 0 for name in nodes}
    followers: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        if source != target:
            followers[source].append(target)
            waiting[target] += 1
    columns = {name: 0 for name in nodes}
    ready = [name for name in nodes if not waiting[name]]
    for name in ready:
        for follower in followers[name]:
            columns[follower] = max(columns[follower], columns[name] + 1)
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return columns


def _chain(number: int, edge: Edge, columns: Mapping[str, int]) -> list[str]:
    source, target = edge
    between = range(columns[source] + 1, columns[target])
    return [source, *(f"{number}@{column}" for column in between), target]


def _rows(
    nodes: Sequence[str], columns: Mapping[str, int], chains: Sequence[Sequence[str]]
) -> list[list[str]]:
    by_column: list[list[str]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    for name in nodes:
        by_column[columns[name]].append(name)
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for chain in chains:
        for offset, name in enumerate(chain[1:-1], 1):
            by_column[columns[chain[0]] + offset].append(name)
        for source, target in itertools.pairwise(chain):
            if source != target:
                before[target].append(source)
                after[source].append(target)
    for sweep in range(_SWEEPS):
        is_forward = sweep % 2 == 0
        neighbours = before if is_forward else after
        rows = {name: row - len(names) / 2 for names in by_column for row, name in enumerate(names)}
        for names in by_column if is_forward else reversed(by_column):
            own = {name: rows[name] for name in names}
            for name in names:
                if near := neighbours[name]:
                    own[name] = sum(rows[one] for one in near) / len(near)
            names.sort(key=own.__getitem__)
            rows.update((name, row - len(names) / 2) for row, name in enumerate(names))
    return by_column


_WIDTH = 1000.0
"""Width of the time axis, in the picture's units."""

_COLORS = 8
"""Number of classes for owners in the style sheet."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a lane.

    Args:
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
            segments.append(Segment(left, max(1.0, right - left), label, style))
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
                    max(2.0, (w["end"] - w["start"]) / span * _WIDTH),
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


_HEIGHT = 46
_ROW = 66
_GAP = 44
_CHARACTER = 7.2
_LONGEST = 34
"""Most characters of a line; the box's title has the whole text."""

_STEP_PATH = re.compile(r"^\S+\.steps\[\d+\] ")
_MODULE = re.compile(r"[\w.]+:(?=\w)")

Figures = Mapping[str, str]
"""Text of a box's second line, by the box's id."""


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A box at its place, in pixels.

    Args:
        figures: second line; empty: none.
        link: address of the page about it.
    """

    box: Box
    x: float
    y: float
    width: float
    height: float
    label: str
    figures: str
    link: str

    @property
    def style(self) -> str:
        """Name of the box's class in the style sheet."""
        return str(self.box.kind).replace(" ", "-")

    @property
    def title(self) -> str:
        """The full text, for a tool tip and for screen readers."""
        stores = f", keeps {', '.join(self.box.stores)}" if self.box.stores else ""
        figures = f": {self.figures}" if self.figures else ""
        return f"{self.box.kind} {self.box.label}{stores}{figures}"


@dataclass(frozen=True, slots=True)
class DrawnArrow:
    """An arrow as an SVG path, with the place of its label."""

    arrow: Arrow
    path: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a topology, in pixels."""

    width: float
    height: float
    boxes: Sequence[DrawnBox]
    arrows: Sequence[DrawnArrow]


def picture_of(diagram: Diagram, figures: Figures, link: Callable[[Box], str]) -> Picture:
    """Return the picture of a diagram.

    Args:
        diagram: of a graph.
        figures: second lines of boxes.
        link: returns the address of the page about a box.
    """
    names = [box.id for box in diagram.boxes]
    layers = arrange(names, [(a.source, a.target) for a in diagram.arrows])
    widths = [0.0] * layers.columns
    for box in diagram.boxes:
        column = layers.places[box.id].column
        widths[column] = max(widths[column], _width(box, figures.get(box.id, "")))
    lefts = [10 + sum(widths[:number]) + number * _GAP for number in range(len(widths))]
    boxes = [
        DrawnBox(
            box,
            lefts[place.column],
            10 + place.row * _ROW,
            widths[place.column],
            _HEIGHT,
            _label(box),
            figures.get(box.id, ""),
            link(box),
        )
        for box in diagram.boxes
        for place in (layers.places[box.id],)
    ]
    arrows = [
        _drawn(arrow, route, lefts, widths)
        for arrow, route in zip(diagram.arrows, layers.routes, strict=True)
    ]
    width = (lefts[-1] + widths[-1] + 10) if widths else 0
    return Picture(width, layers.rows * _ROW, boxes, arrows)


def _width(box: Box, figures: str) -> float:
    stores = ", ".join(box.stores)
    texts = (_label(box), _shortened(stores), figures)
    return 24 + _CHARACTER * max(map(len, texts))


def _label(box: Box) -> str:
    """Return a short label; the topic that a step reads or writes is the next box."""
    has_topic_alongside = box.kind is BoxKind.STEP and box.topic is not None
    return box.label.partition(" ")[0] if has_topic_alongside else _shortened(box.label)


def _shortened(text: str) -> str:
    """Return a label without the path of its step and the modules of its functions."""
    text = _MODULE.sub("", _STEP_PATH.sub("", text))
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}…{text[-(_LONGEST // 2 - 1) :]}"


def _drawn(
    arrow: Arrow, route: Sequence[Place], lefts: Sequence[float], widths: Sequence[float]
) -> DrawnArrow:
    is_back = len(route) > 1 and route[0].column > route[-1].column
    points: list[tuple[float, float]] = []
    for number, place in enumerate(route):
        left, right = lefts[place.column], lefts[place.column] + widths[place.column]
        y = 10 + place.row * _ROW + _HEIGHT / 2
        first, last = number == 0, number == len(route) - 1
        sides = (right, left) if is_back else (left, right)
        if first:
            points.append((sides[1], y))
        elif last:
            points.append((sides[0], y))
        else:
            points += [(sides[0], y), (sides[1], y)]
    path = f"M{points[0][0]:.0f},{points[0][1]:.0f}"
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        middle = (x1 + x2) / 2
        path += f" C{middle:.0f},{y1:.0f} {middle:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"
    (x1, y1), (x2, y2) = points[0], points[1]
    return DrawnArrow(arrow, path, (x1 + x2) / 2, (y1 + y2) / 2 - 4)
