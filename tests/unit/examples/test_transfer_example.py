from __future__ import annotations

import random
from pathlib import Path

import pytest

from eosframework.demo.feeds import example_file
from eosframework.demo.transfer_demo import draw_orders, make_importable
from eosframework.topology.graph.graph import TableSink
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

FOLDER = Path(__file__).parents[3] / "examples" / "transfer"
ACCOUNTS = {"bank_a": {"a.1": 100, "a.2": 100}, "bank_b": {"b.1": 100, "b.2": 100}}


FILES = ["bank_a", "bank_b", "bank_a_together", "bank_b_together"]


@pytest.mark.parametrize(
    "name", [*(f"{name}.yaml" for name in FILES), "tables.sql", "transfers.py"]
)
def test_the_demo_runs_the_example(name: str) -> None:
    assert example_file("transfer", name) == FOLDER / name


@pytest.mark.parametrize(("bank", "other"), [("bank_a", "bank_b"), ("bank_b", "bank_a")])
def test_each_bank_credits_what_the_other_one_sends(bank: str, other: str) -> None:
    app = load_app(str(FOLDER / f"{bank}.yaml"))
    assert lint(app) == []
    graph = resolve(app)
    assert graph.application == bank
    assert graph.sub_topologies == ()
    (table_sink,) = graph.table_sinks
    assert isinstance(table_sink, TableSink)
    assert table_sink.topic == f"{other}.transfers"
    assert [table.table for table in table_sink.tables] == ["credits"]


@pytest.mark.parametrize(("bank", "other"), [("bank_a", "bank_b"), ("bank_b", "bank_a")])
def test_each_bank_debits_what_is_requested_and_sends_it_in_one_decision(
    bank: str, other: str
) -> None:
    app = load_app(str(FOLDER / f"{bank}_together.yaml"))
    assert lint(app) == []
    graph = resolve(app)
    (decided,) = graph.together
    assert [table.table for table in decided.tables] == ["debits"]
    assert f"{bank}.transfers" in graph.sink_topics
    assert {source.topic for part in graph.sub_topologies for source in part.sources} == {
        f"{bank}.requests"
    }
    assert f"{other}.transfers" in {sink.topic for sink in graph.table_sinks}


def test_a_seed_repeats_the_orders() -> None:
    make_importable()
    drawn = [list(draw_orders(50, 10, ACCOUNTS, random.Random(4))) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert {order.sender for order in drawn[0]} == set(ACCOUNTS)
    assert len({order.transfer.id for order in drawn[0]}) == 50
    for order in drawn[0]:
        receiver = "bank_b" if order.sender == "bank_a" else "bank_a"
        assert order.transfer.debited in ACCOUNTS[order.sender]
        assert order.transfer.credited in ACCOUNTS[receiver]
