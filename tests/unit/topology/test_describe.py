from __future__ import annotations

from typing import Any

import pytest

from eosframework.errors import TopologyError
from eosframework.topology.graph.description import as_mermaid, as_text, describe
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import settings_schema, topology_schema
from eosframework.topology.resolve.resolve import resolve
from eosframework.txnid import worker_pattern
from tests.unit.topology.apps import read

TEXT = """
application: a
sources: {s: {topic: s}, t: {topic: t}}
streams:
  both: {from: [s, t], steps: [{peek: "m:shape"}], on_error: {dead_letter: dead}}
  kinds: {from: both, branch: {late: "m:is_late", default: rest}}
  l: {from: late, to: out}
  r: {from: rest, to: {topic_from: "m:by_carrier"}}
"""


@pytest.fixture
def graph() -> Graph:
    return resolve(read(TEXT))


def test_a_description_names_ids_and_topics(graph: Graph) -> None:
    (part,) = describe(graph)["sub_topologies"]
    assert (part["name"], part["transactional_id"]) == ("both", "a:both:{partition}")
    assert part["transactional_ids"] is None
    assert part["sink_topics"] == ["dead", "out"]
    assert len(part["dynamic_sinks"]) == 1


def test_known_partitions_give_the_tasks(graph: Graph) -> None:
    (part,) = describe(graph, {"s": 2, "t": 2})["sub_topologies"]
    assert (part["partitions"], part["transactional_ids"]) == (2, ["a:both:0", "a:both:1"])
    assert "2 tasks, writing as a:both:0 … a:both:1" in as_text(graph, {"s": 2, "t": 2})
    with pytest.raises(TopologyError, match="not co-partitioned"):
        describe(graph, {"s": 2, "t": 3})


def test_the_id_of_a_worker_is_shown_for_all_of_its_tasks(graph: Graph) -> None:
    counts, writer = {"s": 5, "t": 5}, worker_pattern("a")
    (part,) = describe(graph, counts, writer=writer)["sub_topologies"]
    assert part["transactional_id"] == "a:worker.INSTANCE:0"
    assert part["transactional_ids"] is None
    text = as_text(graph, counts, writer=writer)
    assert "5 tasks, writing as a:worker.INSTANCE:0, one id for each worker" in text
    assert "one task for each partition, writing as a:worker" in as_text(graph, writer=writer)


def test_leased_ids_are_shown_in_place_of_derived_ones(graph: Graph) -> None:
    (part,) = describe(graph, leases={"both": ["TX 1", "TX 0"]})["sub_topologies"]
    assert (part["transactional_id"], part["transactional_ids"]) == (None, ["TX 1", "TX 0"])
    assert "writing as leased: TX 1, TX 0" in as_text(graph, leases={"both": ["TX 1", "TX 0"]})
    assert "writing as leased: none yet" in as_text(graph, leases={})


def test_the_text_shows_each_node_once(graph: Graph) -> None:
    text = as_text(graph)
    assert text.count("→ out") == 1
    assert text.count("(merged, as above)") == 1
    assert "else:" in text


def test_the_diagram_links_only_nodes_that_it_declares(graph: Graph) -> None:
    lines = [line.strip() for line in as_mermaid(graph).splitlines()]
    declared = {line.partition("[")[0] for line in lines if "[" in line}
    for line in (line for line in lines if " --> " in line or " -->|" in line):
        assert {line.split()[0], line.split()[-1]} <= declared


def test_the_diagram_shows_where_late_records_go() -> None:
    text = """
application: a
sources: {s: {topic: s, key: string, value: json}, t: {topic: t, key: string, value: json}}
streams:
  counted: {from: s, steps: [{count: {window: {tumbling: 1h, late: too_late}}}], to: out}
  both: {from: s, steps: [{join: {with: t, by: "m:shape", within: 1h, late: too_late}}], to: out}
"""
    lines = as_mermaid(resolve(read(text))).splitlines()
    (late,) = (line.strip().partition("[")[0] for line in lines if "too_late" in line)
    assert sum(line.endswith(f"-. late .-> {late}") for line in lines) == 3


def _refer(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set[str]()
        return own.union(*(_refer(value) for value in schema.values()))
    return (
        set[str]().union(*(_refer(item) for item in schema)) if isinstance(schema, list) else set()
    )


@pytest.mark.parametrize("step", ["group_by", "sum", "reduce", "deduplicate", "map_batch"])
def test_editors_accept_a_step_in_one_text(step: str) -> None:
    forms = topology_schema()["$defs"]["StepSpec"]["properties"][step]["anyOf"]
    assert {"type": "string"} in forms
    assert any("$ref" in form for form in forms)


@pytest.mark.parametrize("schema", [topology_schema(), settings_schema()])
def test_a_schema_describes_every_setting_and_refers_to_what_it_has(schema: Any) -> None:
    assert all(ref.removeprefix("#/$defs/") in schema["$defs"] for ref in _refer(schema))
    for model in schema["$defs"].values():
        for name, setting in model.get("properties", {}).items():
            assert "description" in setting or "$ref" in setting, name


def test_the_schema_takes_the_short_forms() -> None:
    stream = topology_schema()["$defs"]["StreamSpec"]["properties"]
    assert {"type": "string"} in stream["from"]["anyOf"]
    assert {"type": "string"} in stream["to"]["anyOf"]
    assert "from" in topology_schema()["$defs"]["StreamSpec"]["required"]
