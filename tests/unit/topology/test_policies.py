"""The `on_error` that holds at each step: that of the nearest stream that declares one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from eosframework import Topology, dead_letter, tumbling
from eosframework.errors import TopologyError
from eosframework.topology.dsl.streams import Stream
from eosframework.topology.graph.graph import Graph, OnError, Policy, Sink, Source
from eosframework.topology.graph.walk import nodes_of
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import LoadedApp
from eosframework.topology.spec.topology_spec import TopologySpec
from tests.unit.topology.apps import HERE, by_carrier, is_late, shape

SOURCES = {
    "orders": {"topic": "orders", "key": "string", "value": "json"},
    "clicks": {"topic": "clicks", "key": "string", "value": "json", "on_error": "skip"},
    "planes": {"topic": "planes", "key": "string", "value": "json", "table": True},
    "airports": {"topic": "airports", "key": "string", "value": "json", "global": True},
}
CALL = f"{HERE}:shape"
ANEW: dict[str, Any] = {"flat_map": CALL}
"""Behind it are no changes of a table any more, which nothing may fold under another key."""

JOIN: dict[str, Any] = {"join": {"with": "planes", "by": CALL}}

PLAIN: list[list[dict[str, Any]]] = [
    [],
    [{"map_values": CALL}],
    [{"select_key": CALL}],
    [ANEW, {"group_by": {"by": CALL, "key": "string"}}, {"count": {}}],
    [ANEW, {"group_by": {"by": CALL, "key": "string"}}, {"count": {"window": {"tumbling": "1m"}}}],
    [{"select_key": CALL}, {"deduplicate": {"by": CALL, "within": "1m"}}, {"peek": CALL}],
    [{"group_by": {"by": CALL, "key": "string"}}, {"process": {"call": CALL, "stores": {"s": {}}}}],
    [{"group_by": {"by": CALL, "key": "string"}}, {"group_by": {"by": CALL}}, {"peek": CALL}],
    [JOIN],
    [{"select_key": CALL}, JOIN],
    [{"join": {"with": "airports", "by": CALL, "key": CALL}}],
]

Declared = dict[str, dict[str, Any]]


@st.composite
def topologies(draw: st.DrawFn) -> Declared:
    """Streams that read sources, streams and branches before them, in every shape."""
    streams: Declared = {}
    readable = ["orders", "clicks"]
    joined: set[str] = set()  # Rows that a table has a part in meet the same table only once.
    for number in range(draw(st.integers(2, 6))):
        name = f"s{number}"
        parents = draw(st.lists(st.sampled_from(readable), min_size=1, max_size=2, unique=True))
        steps = draw(st.sampled_from(PLAIN))
        if JOIN in steps and not joined.isdisjoint(parents):
            steps = [ANEW, *steps]
        if draw(st.booleans()) and (others := [n for n in readable if n not in parents]):
            other = draw(st.sampled_from(others))
            steps = [*steps, {"join": {"with": other, "by": CALL, "within": "1m"}}]
        steps = [
            {"group_by": {**step["group_by"], "name": f"{name}.{i}"}}
            if "group_by" in step
            else step
            for i, step in enumerate(steps)
        ]
        stream: dict[str, Any] = {"from": parents, "steps": steps, "to": f"out.{name}"}
        if draw(st.booleans()):
            stream["on_error"] = draw(st.sampled_from([{"dead_letter": f"dead.{name}"}, "skip"]))
        if JOIN in steps or not joined.isdisjoint(parents):
            joined |= {name, f"{name}a", f"{name}b"}
        readable.append(name)
        if draw(st.booleans()):
            stream["branch"] = {f"{name}a": CALL, "default": f"{name}b"}
            readable += [f"{name}a", f"{name}b"]
        streams[name] = stream
    return streams


def nearest(streams: Declared, name: str) -> OnError | None:
    """The policy that holds in a stream or branch, told from the declarations alone."""
    for carrier, stream in streams.items():
        if name == carrier or name in (f"{carrier}a", f"{carrier}b"):
            declared = stream.get("on_error")
            if declared == "skip":
                return OnError(Policy.SKIP)
            if declared is not None:
                return OnError(Policy.DEAD_LETTER, declared["dead_letter"])
            above = (nearest(streams, parent) for parent in stream["from"])
            return next((policy for policy in above if policy is not None), None)
    return None


def resolved(streams: Declared) -> Graph:
    data = {"application": "app", "sources": SOURCES, "streams": streams}
    return resolve(LoadedApp(TopologySpec.model_validate(data)))


def stream_of(node: Any) -> str:
    """The declared stream that a node belongs to; the pieces of a cut one are its own."""
    name = node.name if isinstance(node, Source | Sink) else node.stream
    return name.partition(".")[0]


@given(topologies())
def test_the_nearest_declared_policy_holds_at_each_step(streams: Declared) -> None:
    note(repr(streams))
    seen: set[str] = set()
    try:
        graph = resolved(streams)
    except TopologyError as error:
        refused = ("would wait for itself", "grouped-table")
        assume(not any(reason in str(error) for reason in refused))
        raise
    for part in graph.sub_topologies:
        for node in nodes_of(part):
            name = stream_of(node)
            if name in SOURCES:
                continue  # what a source does is its own
            seen.add(name.removesuffix("a").removesuffix("b"))
            expected = nearest(streams, name) or OnError()
            assert node.on_error == expected, f"{node.name} of {name}"
            if expected.topic is not None:
                assert expected.topic in part.sink_topics
    assert seen >= set(streams)


DEAD = OnError(Policy.DEAD_LETTER, "dead")


def by_group(stream: Stream) -> Any:
    return stream.group_by(by_carrier).count()


SHAPES: dict[str, Callable[[Stream], Any]] = {
    "count": by_group,
    "window": lambda s: s.group_by(by_carrier).window(tumbling(minutes=1)).count(),
    "rekeyed": lambda s: s.select_key(by_carrier).group_by_key().count(),
    "named": lambda s: by_group(s.map_values(shape).named("between")),
    "branch": lambda s: by_group(s.branch({"late": is_late})["late"]),
    "split": lambda s: by_group(s.split(is_late)[1]),
}


@pytest.mark.parametrize("shape_name", list(SHAPES))
def test_python_streams_take_it_over_behind_a_group_by(shape_name: str) -> None:
    app = Topology("a")
    stream = app.stream("raw", key=str, value=dict, name="s").map_values(shape)
    SHAPES[shape_name](stream.on_error(dead_letter("dead")).named("first")).to("out")
    graph = resolve(app.loaded())
    assert len(graph.sub_topologies) == 2
    for part in graph.sub_topologies:
        assert {node.on_error for node in nodes_of(part) if not isinstance(node, Source)} == {DEAD}
        assert "dead" in part.sink_topics


def test_of_several_the_first_that_has_one() -> None:
    app = Topology("a")
    plain = app.stream("raw", key=str, value=dict).map_values(shape)
    skipped = app.stream("other", key=str, value=dict).map_values(shape).on_error("skip")
    by_group(plain.merge(skipped)).to("out")
    counted = resolve(app.loaded()).sub_topologies[-1]
    assert {n.on_error.policy for n in nodes_of(counted)} == {Policy.SKIP}
