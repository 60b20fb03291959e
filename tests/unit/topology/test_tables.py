"""Streams that go to tables: directly from their topic, or through one of the application's own."""

from __future__ import annotations

import pytest

from eosframework import Topology
from eosframework.errors import TopologyError
from eosframework.topology.graph.description import as_mermaid, as_text, describe
from eosframework.topology.graph.graph import Graph, Policy, TableMode
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.renaming import renamed
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.topology_spec import relation_parts
from tests.unit.topology.apps import HERE, Flight, is_late, read

DIRECT = """
application: a
sources: {s: {topic: s, key: string, value: "m:Flight"}}
streams:
  flights: {from: s, to: [{table: flights, mode: upsert, keys: id}, {table: public.log}]}
"""
THROUGH = """
application: a
sources: {s: {topic: s, key: string, value: json, on_error: skip}}
streams:
  late:
    from: s
    steps: [{map_values: "m:shape"}]
    on_error: {dead_letter: dead}
    to: [late, {table: late}, {table: kinds, row: "m:by_carrier", on_error: fail}]
"""


def graph_of(text: str) -> Graph:
    return resolve(read(text))


def test_a_topic_that_goes_to_a_table_as_it_is_is_read_directly() -> None:
    graph = graph_of(DIRECT)
    assert graph.sub_topologies == ()
    [table_sink] = graph.table_sinks
    assert (table_sink.name, table_sink.topic, table_sink.sub_topology) == ("flights", "s", None)
    assert [(t.table, t.mode, t.keys) for t in table_sink.tables] == [
        ("flights", TableMode.UPSERT, ("id",)),
        ("public.log", TableMode.APPEND, ()),
    ]
    assert [table.model for table in table_sink.tables] == [Flight, Flight]


def test_rows_that_a_step_made_go_through_a_topic_in_the_transaction() -> None:
    graph = graph_of(THROUGH)
    [part], [table_sink] = graph.sub_topologies, graph.table_sinks
    assert part.sink_topics == ("a-late-rows", "dead", "late")
    assert (table_sink.topic, table_sink.sub_topology) == ("a-late-rows", "late")
    assert (table_sink.key.name, table_sink.value.name) == ("string", "json")
    assert [table.on_error for table in table_sink.tables] == [Policy.DEAD_LETTER, Policy.FAIL]
    assert table_sink.on_error is Policy.FAIL


def test_two_streams_from_one_topic_persist_together() -> None:
    graph = graph_of(
        "application: a\nsources: {s: {topic: s, value: json}}\n"
        "streams: {x: {from: s, to: {table: x}}, y: {from: s, to: {table: y}}}"
    )
    [table_sink] = graph.table_sinks
    assert (table_sink.name, [table.table for table in table_sink.tables]) == ("x", ["x", "y"])


def test_python_and_yaml_declare_the_same_tables() -> None:
    app = Topology("a")
    flights = app.stream("s", key=str, value=Flight).named("flights")
    flights.to_table("flights", mode="upsert", keys="id")
    flights.to_table("public.log")
    assert (
        describe(resolve(app.loaded()))["table_sinks"] == describe(graph_of(DIRECT))["table_sinks"]
    )


def test_a_model_is_the_serde_of_the_rows_it_describes() -> None:
    app = Topology("a")
    app.stream("s", value=dict).filter(is_late).named("late").to_table("late", model=Flight)
    [table_sink] = resolve(app.loaded()).table_sinks
    assert table_sink.value.name == f"{HERE}:Flight"
    assert table_sink.tables[0].model is Flight


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("{table: t, mode: upsert}", "mode upsert needs keys"),
        ("{table: t, keys: [id]}", "mode append has no use for keys"),
        ("{table: t, mode: replace}", "'append', 'upsert' or 'upsert_delete'"),
        ("{table: t, topic: x}", "unknown key 'topic'; known are table, mode, keys"),
        ("{table: 'Drop;'}", "to.table: found 'Drop;'; expected a name of letters"),
        ('{table: t, model: "m:is_late"}', "is no pydantic model"),
        ('{table: t, row: "m:NOT_CALLABLE"}', "expected a function"),
        ("[{table: t}, {table: t}]", "goes to table 't' twice"),
        ("{table: a.b.c}", "expected a name of letters"),
        ("{table: '\"a'}", "expected a name of letters"),
        ("{table: t, value: json}", "its value is what the source says"),
        ("[a-f-rows, {table: t}]", "internal topic of this application (rows)"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(sink: str, message: str | None) -> None:
    text = f"application: a\nsources: {{s: {{topic: s}}}}\nstreams: {{f: {{from: s, to: {sink}}}}}"
    messages = [finding.message for finding in lint(read(text))]
    if message is None:
        assert messages == []
    else:
        assert any(message in found for found in messages), messages


def test_a_table_may_have_any_name_and_its_topic_of_rows_has_one_that_kafka_takes() -> None:
    app = Topology("a")
    rows = app.stream("s", value=dict).filter(is_late)
    rows.to_table('Shop."Order ""Lines"". 1"')
    [table_sink] = resolve(app.loaded()).table_sinks
    assert table_sink.topic == "a-Shop.Order__Lines_._1-rows"
    assert relation_parts(table_sink.tables[0].table) == ("Shop", 'Order "Lines". 1')
    [copied] = resolve(renamed(app.loaded(), "v2")).table_sinks
    assert relation_parts(copied.tables[0].table) == ("Shop", 'Order "Lines". 1_v2')


def test_the_topic_of_rows_cannot_be_written_by_others() -> None:
    text = THROUGH.replace("to: [late,", "to: [a-late-rows,")
    with pytest.raises(TopologyError, match=r"internal topic of this application \(rows\)"):
        graph_of(text)


def test_descriptions_show_tables() -> None:
    graph = graph_of(THROUGH)
    assert "table kinds (append)" in as_text(graph)
    assert "table late" in as_mermaid(graph)


@pytest.mark.parametrize(
    ("step", "table", "count"),
    [
        ('map_values: "m:as_map"', 'model: "m:Flight"', 1),
        ('flat_map_values: "m:as_maps"', 'model: "m:Flight"', 1),
        ('map_values: "m:as_map"', 'model: "m:Flight", value: json', 0),
        ('map_values: "m:as_map"', 'model: "m:Flight", row: "m:shape"', 0),
        ('map_values: "m:as_flight"', 'model: "m:Flight"', 0),
        ('map_values: "m:shape"', 'model: "m:Flight"', 0),
    ],
)
def test_maps_that_are_to_travel_as_a_model_are_told_of(step: str, table: str, count: int) -> None:
    text = f"""
application: a
sources: {{s: {{topic: s, key: string, value: json}}}}
streams:
  late: {{from: s, steps: [{{{step}}}], to: [{{table: t, {table}}}]}}
"""
    found = [finding for finding in lint(read(text)) if finding.rule == "table-serde"]
    assert len(found) == count
    assert all("state value: json" in finding.message for finding in found)
