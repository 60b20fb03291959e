"""The view of a topology: no box for what the next one says, and each step with its functions."""

from __future__ import annotations

import functools

from eosframework.operations.console.topology_view import view_of
from eosframework.topology.graph.code_places import place_of
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications import functions
from tests.support.processes.programs import REPOSITORY


def example() -> Graph:
    return resolve(load_app(str(REPOSITORY / "examples" / "flights" / "delays.yaml")))


def test_sources_sinks_internal_topics_and_dead_letters_have_no_box() -> None:
    view = view_of(example())
    assert {node.label for node in view.nodes if node.part is None} == {
        *("flights.landed", "airlines", "airports", "planes", "weather"),
        *("flights.hourly", "flights.described", "hourly_delays"),
    }
    assert not [n.name for n in view.nodes if n.name.startswith(("read ", "write "))]
    ends = {node.id for node in view.nodes}
    assert all({edge.source, edge.target} <= ends for edge in view.edges)
    internal = {edge.label: edge for edge in view.edges if edge.label.startswith("by_")}
    assert set(internal) == {"by_plane", "by_origin"}
    assert internal["by_plane"].topic == "delays-by_plane-repartition"
    assert internal["by_plane"].is_read


def test_records_that_leave_the_normal_way_are_badges() -> None:
    view = view_of(example())
    badges = {node.label: {badge.kind for badge in node.badges} for node in view.nodes}
    assert badges["aggregate(no_delay, add_delay)"] == {"dead", "late"}
    assert badges["flights.landed"] == {"dead"}, "records that its source cannot decode"
    [letters] = [b for n in view.nodes if n.name == "flights.landed" for b in n.badges]
    assert letters.steps == ("flights",), "counted under the name of the source"
    [hourly] = [n for n in view.nodes if n.stores == ("hourly",)]
    counted = {badge.kind: badge.steps for badge in hourly.badges}
    assert counted["dead"] == (
        hourly.name,
        "hourly.to(flights.hourly)",
        "hourly.to(delays-hourly-rows)",
    )


def test_a_step_names_its_functions_with_their_places_and_its_stores() -> None:
    view = view_of(example())
    [step] = [node for node in view.nodes if node.stores == ("hourly",)]
    assert [code.name for code in step.functions] == ["flights:no_delay", "flights:add_delay"]
    for code in step.functions:
        assert code.file is not None
        assert code.file.endswith("examples/flights/flights.py")
        line = (REPOSITORY / code.file).read_text().splitlines()[(code.line or 0) - 1]
        assert line.startswith(f"def {code.name.partition(':')[2]}(")


def test_places_of_functions_classes_partials_and_builtins() -> None:
    file, line = place_of(functools.partial(functions.double))
    assert file is not None
    assert file.endswith("functions.py")
    assert line == functions.double.__code__.co_firstlineno
    assert (place_of(Graph)[0] or "").endswith("graph.py")
    assert place_of(len) == (None, None)
    assert place_of(eval("lambda value: value")) == (None, None)
