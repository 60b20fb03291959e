"""Cluster resources that table sinks need."""

from __future__ import annotations

from eosframework.application.needed_access import tables_access
from eosframework.process.supervisor import instances_for
from eosframework.serialization.serdes import JSON, STRING
from eosframework.topology.graph.graph import Graph, Policy, TableSink


def test_tables_need_to_read_their_topics_in_a_group_of_their_own() -> None:
    table_sink = TableSink("s", "orders", STRING, JSON, (), Policy.FAIL)
    assert [str(access) for access in tables_access(Graph("shop", (), (table_sink,)))] == [
        "Topic orders: Read",
        "Group shop:tables: Read",
    ]
    assert tables_access(Graph("shop", ())) == []


def test_children_of_two_kinds_have_different_names() -> None:
    assert not set(instances_for("host.0", 2)) & set(instances_for("host.0", 2, "tables"))
