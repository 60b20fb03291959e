"""An output states how `apply` creates its topic."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework import Topology
from eosframework.application.provision import stated_outputs
from eosframework.errors import TopologyError
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

TOPOLOGY = """
application: shop
sources:
  orders: {topic: orders, value: json}
streams:
  paid:
    from: orders
    to:
      - {topic: paid, value: json, partitions: 12, retention: 7d}
      - {topic: latest, value: json, settings: {cleanup.policy: compact}}
      - plain
"""
COMPACTED = {"cleanup.policy": "compact"}


def test_a_file_states_partitions_retention_and_settings() -> None:
    stated = stated_outputs(resolve(read_yaml(TOPOLOGY, "shop.yaml")))
    assert {name: (sink.partitions, sink.settings) for name, sink in stated.items()} == {
        "paid": (12, {"retention.ms": "604800000"}),
        "latest": (None, COMPACTED),
    }


def test_a_program_states_the_same() -> None:
    app = Topology("shop")
    orders = app.stream("orders", value=dict)
    orders.to("paid", partitions=12, retention="7d")
    orders.to("latest", settings=COMPACTED)
    stated = stated_outputs(resolve(app.loaded()))
    assert stated["paid"].settings == {"retention.ms": "604800000"}
    assert (stated["latest"].partitions, stated["latest"].settings) == (None, COMPACTED)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- plain", "- {topic: paid, partitions: 3}", "topic 'paid' has other partitions"),
        (
            "- plain",
            '- {topic_from: "tests.support.applications.functions:double", partitions: 3}',
            "go with topic",
        ),
        (
            "retention: 7d",
            'retention: 7d, settings: {retention.ms: "5"}',
            "both state retention.ms",
        ),
        ("partitions: 12", "partitions: 0", "greater than 0"),
    ],
)
def test_a_contradiction_is_named(old: str, new: str, message: str) -> None:
    assert old in TOPOLOGY
    with pytest.raises(TopologyError, match=message):
        resolve(read_yaml(TOPOLOGY.replace(old, new), "shop.yaml"))


@pytest.mark.parametrize(
    "stated",
    [
        {"partitions": 0},
        {"retention": "soon"},
        {"retention": "1d", "settings": {"retention.ms": "1"}},
    ],
)
def test_a_program_that_contradicts_itself_gets_the_place(stated: dict[str, Any]) -> None:
    orders = Topology("shop").stream("orders", value=dict)
    with pytest.raises(TopologyError, match=r"test_stated_outputs\.py:\d+:\d+: to\(\)"):
        orders.to("paid", **stated)
