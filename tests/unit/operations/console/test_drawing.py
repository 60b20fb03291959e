"""Drawings: every box and arrow has its place, whatever the graph."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from eosframework.operations.console.drawing import (
    arrange,
    picture_of,
    transaction_timeline,
    windows_timeline,
)
from eosframework.operations.console.pages import link_to
from eosframework.topology.graph.description import BoxKind, draw
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.processes.programs import REPOSITORY

NODES = [f"n{number}" for number in range(8)]
EDGES = st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=24)


@given(EDGES)
def test_any_graph_with_cycles_or_without_gets_places_of_which_none_is_shared(
    edges: list[tuple[str, str]],
) -> None:
    layers = arrange(NODES, edges)
    places = [(place.column, place.row) for place in layers.places.values()]
    assert len(set(places)) == len(NODES)
    assert all(0 <= p.column < layers.columns for p in layers.places.values())
    assert all(0 <= p.row <= layers.rows - 1 for p in layers.places.values())
    for (source, target), route in zip(edges, layers.routes, strict=True):
        assert (route[0], route[-1]) == (layers.places[source], layers.places[target])
        steps = {abs(a.column - b.column) for a, b in itertools.pairwise(route)}
        assert steps <= ({0} if source == target else {1}), "it passes each column between"


@given(EDGES)
def test_edges_of_a_graph_without_cycles_lead_to_the_right(edges: list[tuple[str, str]]) -> None:
    forward = [(a, b) for a, b in edges if a < b]
    for route in arrange(NODES, forward).routes:
        assert all(a.column < b.column for a, b in itertools.pairwise(route))


def test_an_example_is_drawn_whole_with_a_link_on_each_box() -> None:
    graph = resolve(load_app(str(REPOSITORY / "examples" / "flights" / "delays.yaml")))
    diagram = draw(graph)
    figures = {box.id: "1.0 offsets/s" for box in diagram.boxes if box.kind is BoxKind.TOPIC}
    picture = picture_of(diagram, figures, link_to)
    assert len(picture.boxes) == len(diagram.boxes)
    assert len(picture.arrows) == len(diagram.arrows)
    assert all(box.link.startswith("/") for box in picture.boxes)
    assert all(box.x >= 0 and box.x + box.width <= picture.width for box in picture.boxes)
    assert all(box.y >= 0 and box.y + box.height <= picture.height for box in picture.boxes)
    for one, other in itertools.combinations(picture.boxes, 2):
        apart = (
            one.x + one.width <= other.x
            or other.x + other.width <= one.x
            or one.y + one.height <= other.y
            or other.y + other.height <= one.y
        )
        assert apart, (one.label, other.label)


def test_a_traced_transaction_has_a_lane_for_each_partition() -> None:
    start = datetime(2026, 1, 31, 6, tzinfo=UTC)
    place = {"topic": "out", "partition": 1}
    moments = [start + timedelta(seconds=n) for n in range(4)]
    timeline = transaction_timeline(
        {
            "states": [
                {"state": "Ongoing", "time": moments[0], "joined": [place]},
                {"state": "PrepareCommit", "time": moments[2], "joined": []},
                {"state": "CompleteCommit", "time": moments[3], "joined": []},
            ],
            "markers": [{**place, "offset": 7, "time": moments[3], "committed": True}],
        }
    )
    assert timeline is not None
    coordinator, partition = timeline.lanes
    assert [round(segment.width) for segment in coordinator.segments] == [667, 333]
    assert [mark.style for mark in partition.marks] == ["joined", "committed"]
    assert [mark.x for mark in partition.marks] == [0, 1000]
    assert transaction_timeline({"states": [], "markers": []}) is None


def test_windows_of_a_key_lie_where_their_times_are() -> None:
    rows = [{"start": 0, "end": 1000, "value": 1}, {"start": 3000, "end": 4000, "value": 2}]
    timeline = windows_timeline(rows)
    assert timeline is not None
    assert [(s.x, s.width) for lane in timeline.lanes for s in lane.segments] == [
        (0, 250),
        (750, 250),
    ]
    assert windows_timeline([{"count": 1}]) is None
