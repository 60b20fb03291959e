"""Rates inside a sub-topology follow from those of topics, or are not stated."""

from __future__ import annotations

from pathlib import Path

from eosframework.operations.console.edge_rates import edge_rates
from eosframework.operations.console.topology_view import TopologyView, view_of
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

FUNCTIONS = "tests.support.applications.functions"


def view(folder: Path, streams: str) -> TopologyView:
    file = folder / "app.yaml"
    head = "application: shop\nsources:\n  orders: {topic: shop.orders, value: json}\nstreams:\n"
    file.write_text(head + streams.replace("F:", f"{FUNCTIONS}:"))
    return view_of(resolve(load_app(str(file))))


def rates(found: TopologyView, **topics: float | None) -> dict[tuple[str, str], float | None]:
    labels = {node.id: node.label for node in found.nodes}
    known = {f"shop.{name}": rate for name, rate in topics.items()}
    known["shop-by_ten-repartition"] = topics.get("by_ten")
    each = zip(found.edges, edge_rates(found, known), strict=True)
    return {(labels[edge.source], labels[edge.target]): rate for edge, rate in each}


CHAIN = """\
  kept:
    from: orders
    steps:
      - peek: "F:double"
      - filter: "F:by_chance"
      - map_values: "F:double"
      - group_by: {by: "F:tens", key: string, name: by_ten}
      - count: {}
    to: [{topic: shop.totals}]
"""


def test_they_follow_along_steps_that_send_one_record_for_each(tmp_path: Path) -> None:
    found = rates(view(tmp_path, CHAIN), orders=100.0, by_ten=40.0, totals=40.0)
    assert found["peek(double)", "filter(by_chance)"] == 100
    assert found["filter(by_chance)", "map_values(double)"] == 40, "back from what is written"
    assert found["map_values(double)", "select_key(tens)"] == 40


def test_what_does_not_follow_is_not_stated(tmp_path: Path) -> None:
    found = rates(view(tmp_path, CHAIN), orders=100.0, by_ten=None, totals=40.0)
    assert found["filter(by_chance)", "map_values(double)"] is None
    assert found["map_values(double)", "select_key(tens)"] is None
    assert found["peek(double)", "filter(by_chance)"] == 100


BRANCHES = """\
  paid:
    from: orders
    steps: [map_values: "F:double"]
    branch: {some: "F:by_chance", default: others}
  one: {from: some, to: [{topic: shop.some}]}
  two: {from: others, to: [{topic: shop.others}]}
"""


def test_a_branch_sends_each_record_to_one_follower(tmp_path: Path) -> None:
    found = rates(view(tmp_path, BRANCHES), orders=100.0, some=30.0, others=None)
    assert [rate for (_, to), rate in found.items() if to == "shop.some"] == [30]
    assert [rate for (_, to), rate in found.items() if to == "shop.others"] == [None]
    assert [rate for (start, _), rate in found.items() if start == "map_values(double)"] == [100]


SHARED = """\
  first: {from: orders, steps: [map_values: "F:double"], to: [{topic: shop.all}]}
  second: {from: orders, steps: [filter: "F:by_chance"], to: [{topic: shop.all}]}
"""


def test_a_topic_of_two_writers_says_nothing_about_one(tmp_path: Path) -> None:
    found = rates(view(tmp_path, SHARED), orders=100.0, all=130.0)
    assert found["map_values(double)", "shop.all"] == 100
    assert found["filter(by_chance)", "shop.all"] is None
