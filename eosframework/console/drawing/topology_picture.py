"""The picture of a topology: boxes with rates and lag, and the arrows between them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eosframework.console.drawing.layers import Place, arrange
from eosframework.topology.graph.description import Arrow, Box, BoxKind, Diagram

HEIGHT = 46
ROW = 66
GAP = 44
CHARACTER = 7.2
LONGEST = 34
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
    lefts = [10 + sum(widths[:number]) + number * GAP for number in range(len(widths))]
    boxes = [
        DrawnBox(
            box,
            lefts[place.column],
            10 + place.row * ROW,
            widths[place.column],
            HEIGHT,
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
    return Picture(width, layers.rows * ROW, boxes, arrows)


def _width(box: Box, figures: str) -> float:
    stores = ", ".join(box.stores)
    texts = (_label(box), _shortened(stores), figures)
    return 24 + CHARACTER * max(map(len, texts))


def _label(box: Box) -> str:
    """Return a short label; the topic that a step reads or writes is the next box."""
    has_topic_alongside = box.kind is BoxKind.STEP and box.topic is not None
    return box.label.partition(" ")[0] if has_topic_alongside else _shortened(box.label)


def _shortened(text: str) -> str:
    """Return a label without the path of its step and the modules of its functions."""
    text = _MODULE.sub("", _STEP_PATH.sub("", text))
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}…{text[-(LONGEST // 2 - 1) :]}"


def _drawn(
    arrow: Arrow, route: Sequence[Place], lefts: Sequence[float], widths: Sequence[float]
) -> DrawnArrow:
    is_back = len(route) > 1 and route[0].column > route[-1].column
    points: list[tuple[float, float]] = []
    for number, place in enumerate(route):
        left, right = lefts[place.column], lefts[place.column] + widths[place.column]
        y = 10 + place.row * ROW + HEIGHT / 2
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
