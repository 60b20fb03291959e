"""A layered drawing of a directed graph: columns from left to right, few crossings.

1. Arrows that close a cycle are turned around (a replay topic, for example, leads back).
2. A box is one column to the right of the rightmost box that leads to it.
3. An arrow over several columns gets a point in each of them, so that it passes between boxes.
4. The rows of a column are sorted by the mean row of the neighbours, alternately from the left and
   from the right (Sugiyama's method with barycentres).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SWEEPS = 8

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
    for sweep in range(SWEEPS):
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
