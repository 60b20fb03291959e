"""Declarations of joins by foreign keys: names, topics, refusals and the record of a topology."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework import Record, Topology, tumbling
from eosframework.errors import ConfigurationError, TopologyError
from eosframework.spark.job.stages import stages
from eosframework.testing.topology_test_driver import graph_of
from eosframework.topology.evolution.recorded import recorded
from eosframework.topology.evolution.topology_diff import changes_between
from eosframework.topology.graph.code_places import functions_of
from eosframework.topology.graph.description import describe
from eosframework.topology.graph.walk import nodes_of

Value = dict[str, Any]


def tail(flight: Record[Any, Value]) -> str | None:
    return flight.value["tail"]


def number(flight: Record[int, Value]) -> int:
    return flight.value["number"]


def both(flight: Value, plane: Value | None) -> Value:
    return {**flight, "plane": plane}


def declared(**options: Any) -> Topology:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=str, value=dict)
    flights.join(planes, both, **options).to("out", value=dict)
    return app


def test_topics_and_stores_are_named_after_the_stream_or_as_stated() -> None:
    derived, stated = graph_of(declared(key=tail)), graph_of(declared(key=tail, store="fleet"))
    for graph, name in ((derived, "flights.join"), (stated, "fleet")):
        topics = {f"air-{name}.{part}-repartition" for part in ("rows", "subscriptions", "answers")}
        assert graph.repartition_topics == topics
        kept = {f"{name}.{part}" for part in ("subscribed", "subscribers", "joined")}
        assert {store.name for store in graph.stores} == {"flights", "planes", *kept}


def test_the_topology_is_described_with_each_step_and_function() -> None:
    graph = graph_of(declared(key=tail, how="left"))
    parts = {part["name"]: part for part in describe(graph)["sub_topologies"]}
    assert [*parts] == ["flights", "planes", "flights.join.keyed"]
    [_, asks] = parts["flights"]["keyed"]
    assert asks["functions"] == {"key": f"{__name__}:tail"}
    [joined] = parts["flights.join.keyed"]["keyed"]
    assert (joined["kind"], joined["store"]) == ("left", "flights.join.joined")
    called = {
        f.name for part in graph.sub_topologies for n in nodes_of(part) for f in functions_of(n)
    }
    assert {f"{__name__}:tail", f"{__name__}:both"} <= called


def test_yaml_declares_the_same_join(tmp_path: Any) -> None:
    file = tmp_path / "air.yaml"
    file.write_text(f"""
application: air
sources:
  flights: {{topic: flights, key: integer, value: json, table: true}}
  planes: {{topic: planes, key: string, value: json, table: true}}
streams:
  joined:
    from: flights
    steps:
      - join: {{with: planes, by: "{__name__}:both", key: "{__name__}:tail", store: fleet}}
    to: {{topic: out, value: json}}
""")
    assert graph_of(str(file)).repartition_topics == (
        graph_of(declared(key=tail, store="fleet")).repartition_topics
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": tail, "how": "outer"}, "outer joined with table 'planes' by a key of its own"),
        ({"key": number}, r"number returns int, and table 'planes' has keys of string"),
        ({"key": tail, "order": "time"}, "states order: for a join of tables"),
        ({"store": "fleet"}, "store"),
    ],
)
def test_what_does_not_fit_is_refused(options: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        graph_of(declared(**options))


def test_two_joins_of_one_stream_need_names() -> None:
    app = Topology("air")
    flights = app.table("flights", key=int, value=dict)
    planes = app.table("planes", key=str, value=dict)
    flights.join(planes, both, key=tail).to("one", value=dict)
    flights.join(planes, both, key=tail).to("two", value=dict)
    with pytest.raises(TopologyError, match="store="):
        graph_of(app)


def employees() -> Topology:
    app = Topology("staff")
    people = app.table("people", key=str, value=dict)
    people.join(people, both, how="left", key=tail).to("out", value=dict)
    return app


def test_a_backfill_of_a_circle_is_refused() -> None:
    graph = graph_of(employees())
    with pytest.raises(ConfigurationError, match="feed each other in a circle"):
        stages(graph, {part.name: 1 for part in graph.sub_topologies})


def test_a_backfill_runs_the_steps_of_a_join_one_after_the_other() -> None:
    graph = graph_of(declared(key=tail))
    found = stages(graph, {part.name: 1 for part in graph.sub_topologies})
    assert [stage.name for stage in found] == ["flights", "planes", "flights.join.keyed"]


def pairs(person: Record[str, Value]) -> list[tuple[str, Value]]:
    return [(person.key, person.value)]


def test_a_circle_with_a_step_that_depends_on_time_is_refused() -> None:
    app = Topology("staff")
    people = app.table("people", key=str, value=dict)
    joined = people.join(people, both, how="left", key=tail).flat_map(pairs)
    joined.group_by_key().window(tumbling(hours=1)).count().to("counted")
    with pytest.raises(TopologyError, match="which would wait for itself"):
        graph_of(app)


def test_the_record_of_a_topology_has_the_functions_of_the_join() -> None:
    before = recorded(graph_of(declared(key=tail)), {})
    assert before.stores["flights.join.subscribed"].functions[-1]["of"].endswith(":tail")
    assert before.stores["flights.join.joined"].kind == "foreign-key join"
    plain = Topology("air")
    plain.table("flights", key=int, value=dict).to("out", value=dict)
    added = changes_between(
        recorded(graph_of(plain), {}), before, partitions={}, upgradable=(), declared={}, matched={}
    )
    assert {change.change for change in added} >= {"store_added", "part_added"}


def test_a_stream_joined_with_itself_under_another_key_is_refused() -> None:
    """Nothing it waits for would ever be over: its watermarks are its own stream time."""
    app = Topology("shop")
    orders = app.stream("orders", key=str, value=dict)
    orders.select_key(tail).join_within(orders, both, "1m", how="left").to("out", value=dict)
    with pytest.raises(TopologyError, match="would never emit"):
        graph_of(app)
