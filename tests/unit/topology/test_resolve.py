from __future__ import annotations

import pytest

from eosframework.records import Record
from eosframework.serialization.serdes import BYTES, CHECKED_BYTES, INTEGER, JSON, STRING, serde_of
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import (
    Function,
    Graph,
    OnError,
    Operator,
    Policy,
    Sink,
    Source,
    Step,
)
from eosframework.topology.resolve.resolve import resolve
from tests.unit.topology.apps import Flight, by_carrier, departure, is_early, is_late, read, shape

DEAD = OnError(Policy.DEAD_LETTER, "dead")
SKIP = OnError(Policy.SKIP)
FAIL = OnError()


def graph(streams: str, sources: str = "s: {topic: s}") -> Graph:
    return resolve(read(f"application: a\nsources: {{{sources}}}\nstreams: {{{streams}}}"))


def only_source(resolved: Graph) -> Source:
    ((source,),) = [part.sources for part in resolved.sub_topologies]
    return source


def test_steps_and_sinks_follow_in_the_declared_order() -> None:
    source = only_source(
        graph(
            'x: {from: s, steps: [{filter: "m:is_late"}, {map_values: "m:shape"}], to: [t, u]}',
            's: {topic: s, key: string, value: json, timestamp: "m:departure"}',
        )
    )
    assert (source.topic, source.key, source.value) == ("s", STRING, JSON)
    assert source.timestamp == Function(departure.__module__ + ":departure", departure)
    (late,) = source.children
    assert isinstance(late, Step)
    assert (late.operator, late.function.call, late.stream) == (Operator.FILTER, is_late, "x")
    assert late.name == f"x.steps[0] filter({is_late.__module__}:is_late)"
    (shaped,) = late.children
    assert isinstance(shaped, Step)
    assert [sink.topic for sink in shaped.children if isinstance(sink, Sink)] == ["t", "u"]


def test_a_merge_is_one_node_with_several_parents() -> None:
    resolved = graph(
        'x: {from: [s, t], steps: [{peek: "m:shape"}]}', "s: {topic: s}, t: {topic: t}"
    )
    (part,) = resolved.sub_topologies
    (one,), (other,) = (source.children for source in part.sources)
    assert one is other


def test_a_branch_is_taken_by_the_first_predicate_that_holds() -> None:
    source = only_source(
        graph(
            'k: {from: s, branch: {late: "m:is_late", early: "m:is_early", default: rest}},'
            "l: {from: late, to: l}, e: {from: early, to: e}, r: {from: rest, to: r}"
        )
    )
    (step,) = source.children
    assert isinstance(step, Step)
    assert (step.operator, step.children) == (Operator.BRANCH, [])
    calls = [predicate and predicate.call for predicate, _ in step.branches]
    assert calls == [is_late, is_early, None]
    topics = [[n.topic for n in nodes if isinstance(n, Sink)] for _, nodes in step.branches]
    assert topics == [["l"], ["e"], ["r"]]
    assert [step.function.call({"delay": d}) for d in (20, -1, 0)] == [0, 1, 2]


def test_each_predicate_is_asked_at_most_once() -> None:
    asked: list[str] = []
    app = Topology("a")
    first, second, _ = app.stream("s").split(
        lambda v: asked.append("first"), lambda v: asked.append("second") or True
    )
    first.to("f")
    second.to("g")
    (step,) = only_source(resolve(app.loaded())).children
    assert isinstance(step, Step)
    assert step.function.call(1) == 1
    assert asked == ["first", "second"]


def test_without_a_default_the_records_left_go_nowhere() -> None:
    (step,) = only_source(graph('k: {from: s, branch: {late: "m:is_late"}}')).children
    assert isinstance(step, Step)
    assert step.function.call({"delay": 0}) is None


def test_policies_come_from_the_stream_or_from_what_it_reads() -> None:
    source = only_source(
        graph(
            'x: {from: s, steps: [{peek: "m:shape"}], on_error: {dead_letter: dead}},'
            "y: {from: x, to: y}, z: {from: x, to: z, on_error: skip}, f: {from: s, to: f}"
        )
    )
    assert source.on_error == DEAD
    (step, plain) = source.children
    assert isinstance(step, Step)
    assert [step.on_error, *(child.on_error for child in step.children)] == [DEAD, DEAD, SKIP]
    assert plain.on_error == FAIL


def test_a_sources_own_policy_covers_decoding_only() -> None:
    source = only_source(graph("x: {from: s, to: x}", "s: {topic: s, on_error: skip}"))
    assert (source.on_error, source.children[0].on_error) == (SKIP, FAIL)


def test_streams_are_resolved_whatever_the_order_of_their_declaration() -> None:
    source = only_source(
        graph(
            "b: {from: a, to: b}, a: {from: s, steps: [{map_values: 'm:shape'}]}".replace("'", '"')
        )
    )
    (step,) = source.children
    assert isinstance(step, Step)
    assert [child.name for child in step.children] == ["b.to(b)"]


def test_sub_topologies_are_the_connected_parts_named_by_their_first_stream() -> None:
    resolved = graph(
        "late: {from: s, to: x}, other: {from: t, to: y}, more: {from: s, to: z}",
        "s: {topic: s}, t: {topic: t}, u: {topic: u}",
    )
    assert [part.name for part in resolved.sub_topologies] == ["late", "other"]
    assert [part.sink_topics for part in resolved.sub_topologies] == [("x", "z"), ("y",)]


def test_streams_of_one_topic_share_a_task_and_a_source() -> None:
    resolved = graph("x: {from: s, to: x}, y: {from: t, to: y}", "s: {topic: s}, t: {topic: s}")
    source = only_source(resolved)
    assert [child.name for child in source.children] == ["x.to(x)", "y.to(y)"]


def test_name_says_otherwise() -> None:
    resolved = graph("x: {from: s, to: x}", "s: {topic: s, name: delays}")
    assert [part.name for part in resolved.sub_topologies] == ["delays"]


def test_dead_letters_and_declared_choices_are_topics_that_are_written() -> None:
    resolved = graph(
        'x: {from: s, to: {topic_from: "m:by_carrier", topics: [f, g]}}',
        "s: {topic: s, on_error: {dead_letter: dead}}",
    )
    (part,) = resolved.sub_topologies
    assert part.sink_topics == ("dead", "f", "g")
    assert part.dynamic_sinks == (f"x.to({by_carrier.__module__}:by_carrier)",)


def test_a_chosen_topic_that_is_not_declared_is_refused() -> None:
    app = Topology("a")
    app.stream("s").to(by_carrier, topics=["flights.UA"])
    (sink,) = only_source(resolve(app.loaded())).children
    assert isinstance(sink, Sink)
    assert isinstance(sink.topic, Function)
    assert sink.topic.call(Record("UA", None, 0)) == "flights.UA"
    with pytest.raises(ValueError, match=r"chose topic 'flights.AA'; the sink declares flights.UA"):
        sink.topic.call(Record("AA", None, 0))


def test_sinks_write_with_the_serdes_of_the_source_unless_they_say_otherwise() -> None:
    app = Topology("a")
    flights = app.stream("s", key=int, value=Flight)
    flights.filter(is_late).to("same")
    flights.map_values(shape).to("other", value=dict)
    (kept, changed) = (
        child.children[0]
        for child in only_source(resolve(app.loaded())).children
        if isinstance(child, Step)
    )
    assert isinstance(kept, Sink)
    assert isinstance(changed, Sink)
    assert (kept.key, kept.value) == (INTEGER, serde_of(Flight))
    assert (changed.key, changed.value) == (INTEGER, JSON)


def test_bytes_are_checked_where_a_function_made_them() -> None:
    app = Topology("a")
    flights = app.stream("s")
    flights.filter(is_early).to("same")
    flights.map_values(shape).to("other")
    same, other = (
        child.children[0]
        for child in only_source(resolve(app.loaded())).children
        if isinstance(child, Step)
    )
    assert isinstance(same, Sink)
    assert isinstance(other, Sink)
    assert (same.key, same.value) == (BYTES, BYTES)
    assert (other.key, other.value) == (BYTES, CHECKED_BYTES)
