"""No edit of a program gives a store to a step that did not write it, unless a start is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from eosframework import Topology
from eosframework.application.control_topic import ControlState
from eosframework.application.topology_changes import (
    accepted_entry,
    refuse_changes,
    topology_changes,
    topology_entry,
)
from eosframework.errors import StartRefused, TopologyError
from eosframework.kafka.admin.metadata import TopicDescription
from eosframework.topology.evolution import Change, Verdict
from eosframework.topology.graph.graph import Graph
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import LoadedApp
from tests.unit.topology.evolution.programs import (
    Program,
    edited,
    in_python,
    in_yaml,
    owners,
    random_program,
)

Load = Callable[[Program], LoadedApp]


def topics_of(graph: Graph) -> dict[str, TopicDescription]:
    names = [*graph.changelog_topics, *graph.source_topics]
    return {name: TopicDescription(True, f"id of {name}", 2) for name in names}


def ran(graph: Graph, control: ControlState | None = None) -> ControlState:
    """Return the control topic once a worker of this topology has started."""
    before = control or ControlState(cluster_id="c")
    return _with(before, topology_entry(graph, before, topics_of(graph)))


def applied(graph: Graph, control: ControlState, *accepted: str) -> ControlState:
    return _with(control, accepted_entry(graph, control, topics_of(graph), accepted))


def _with(control: ControlState, entries: dict[str, object]) -> ControlState:
    known = {**control.entries, **orjson.loads(orjson.dumps(entries))}
    return replace(control, entries=known)


def changes(graph: Graph, control: ControlState) -> list[Change]:
    return topology_changes(graph, control, topics_of(graph))


def start(graph: Graph, control: ControlState) -> None:
    """Start a worker while every store and repartition topic of the old topology has content."""
    found = changes(graph, control)
    refuse_changes("shop", found, {change.name for change in found})


def test_the_functions_that_own_a_store_are_found_without_its_name() -> None:
    chance = random.Random(1)
    while True:
        try:
            graph = resolve(in_python(random_program(chance)))
            break
        except TopologyError:
            continue
    assert {store.name for store in graph.stores} == owners(graph).keys()
    assert all(owner.keys for owner in owners(graph).values())


def _search(load: Load, runs: int, seed: str) -> Counter[str]:
    chance, seen = random.Random(seed), Counter[str]()
    while sum(seen.values()) < runs:
        program = random_program(chance)
        try:
            before = resolve(load(program))
        except TopologyError:
            continue
        after_edit = edited(program, chance)
        for _ in range(chance.choice((0, 0, 1))):
            after_edit = edited(after_edit, chance)
        try:
            after = resolve(load(after_edit))
            start(after, ran(before))
        except TopologyError:
            seen["refused by lint"] += 1
        except StartRefused:
            seen["refused by the start"] += 1
        else:
            seen["unchanged" if program == after_edit else "started"] += 1
            made, now = owners(before), owners(after)
            wrong = {name for name in made if now.get(name) != made[name]}
            assert not wrong, (program, after_edit)
    return seen


@pytest.mark.parametrize("load", [in_python, pytest.param(in_yaml, marks=pytest.mark.exhaustive)])
def test_each_store_belongs_to_the_step_that_wrote_it(load: Load) -> None:
    seen = _search(load, 200, load.__name__)
    # Neither are all edits refused nor all allowed.
    assert min(seen.values()) > 15, seen
    assert len(seen) == 4, seen


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("load", [in_python, in_yaml])
def test_each_store_belongs_to_the_step_that_wrote_it_whatever_the_edit(
    load: Load, seed: int
) -> None:
    _search(load, 1000, f"{load.__name__} {seed}")


def user(record: object) -> str:
    return str(record)


def seller(record: object) -> str:
    return str(record)


def cents(order: dict[str, int]) -> int:
    return order["cents"]


def items(order: dict[str, int]) -> int:
    return order["items"]


def total(order: dict[str, int]) -> int:
    return order["cents"]


class Shop:
    """A program of sums per user, line by line."""

    def __init__(self) -> None:
        self.app = Topology("shop")
        self.orders = self.app.stream("orders", key=str, value=dict)

    def sum(
        self,
        of: Callable[[dict[str, int]], int],
        *,
        group: str | None = None,
        store: str | None = None,
    ) -> Shop:
        named = self.orders.group_by(user, key=str, name=group)
        summed = named.sum(of) if store is None else named.sum(of, store=store)
        summed.to("out", value="json")
        return self

    @property
    def graph(self) -> Graph:
        return resolve(self.app.loaded())


def test_a_line_above_another_takes_nothing_from_it() -> None:
    first = Shop().sum(cents)
    assert [store.name for store in first.graph.stores] == ["orders.sum"]
    with pytest.raises(TopologyError, match="ambiguous-name") as caught:
        Shop().sum(items).sum(cents).graph  # noqa: B018
    assert str(caught.value).count("ambiguous-name") == 2
    assert 'name="orders.items"' in str(caught.value)
    assert 'name="orders.cents"' in str(caught.value)

    named = Shop().sum(items, group="orders.items").sum(cents, group="orders.cents").graph
    [removed] = [c for c in changes(named, ran(first.graph)) if c.change == "store_removed"]
    assert removed.name == "orders.sum"
    assert "store 'orders.cents.sum': to keep it, write store=\"orders.sum\"" in removed.found
    assert 'name="orders" in' in removed.found
    with pytest.raises(StartRefused, match=r"shop-orders\.sum-changelog has state"):
        refuse_changes("shop", [removed], {"orders.sum"})
    kept = Shop().sum(items, group="x", store="y").sum(cents, group="orders", store="orders.sum")
    assert {change.verdict for change in changes(kept.graph, ran(first.graph))} <= {
        Verdict.ROLLING,
        Verdict.APPLY,
        Verdict.STOP,
    }


def test_stated_names_that_are_exchanged_are_refused_with_the_lines_to_write() -> None:
    before = Shop().sum(items, group="i", store="a").sum(cents, group="c", store="b").graph
    after = Shop().sum(items, group="i", store="b").sum(cents, group="c", store="a").graph
    taken = [c for c in changes(after, ran(before)) if c.change == "store_taken"]
    assert {change.name for change in taken} == {"a", "b"}
    assert all("to keep it, write store=" in change.found for change in taken)
    with pytest.raises(StartRefused, match="values of another one"):
        refuse_changes("shop", taken, ())
    assert applied(after, ran(before)) != before


def test_repartition_topics_that_are_exchanged_are_drained() -> None:
    def graph(of_user: str, of_seller: str) -> Graph:
        shop = Shop()
        for key, name in ((user, of_user), (seller, of_seller)):
            shop.orders.group_by(key, key=str, name=name).count(store=name).to("out", value="json")
        return shop.graph

    found = changes(graph("b", "a"), ran(graph("a", "b")))
    taken = [change for change in found if change.change == "repartition_taken"]
    assert {change.name for change in taken} == {"shop-a-repartition", "shop-b-repartition"}
    assert all(change.verdict is Verdict.DRAIN for change in taken)
    assert f"keys are made by {__name__}:seller, before by {__name__}:user" in taken[0].found
    with pytest.raises(StartRefused, match="by the steps after another `group_by`"):
        refuse_changes("shop", taken, {"shop-a-repartition"})


def test_a_replaced_function_keeps_the_store_once_apply_has_recorded_it() -> None:
    before, after = Shop().sum(cents).graph, Shop().sum(total).graph
    control = ran(before)
    [change] = [c for c in changes(after, control) if c.name == "orders.sum"]
    assert (change.change, change.verdict) == ("store_function", Verdict.CONFIRM)
    assert change.found == f"of: {__name__}:total, before {__name__}:cents"
    assert "existing values were made by the old one" in change.why
    with pytest.raises(StartRefused, match="`eosframework apply APP` records it"):
        start(after, control)
    control = applied(after, control)
    start(after, control)
    start(before, control)  # a worker of the old version restarts meanwhile
    control = ran(before, ran(after, control))
    start(after, control)


def test_a_store_that_apply_drops_never_comes_back() -> None:
    before = Shop().sum(cents, group="c", store="a").sum(items, group="i", store="b").graph
    after = Shop().sum(items, group="i", store="b").graph
    control = ran(before)
    with pytest.raises(StartRefused, match="--accept"):
        refuse_changes("shop", changes(after, control), {"a"})
    refuse_changes("shop", changes(after, control), ())  # its changelog is empty, or deleted
    control = applied(after, control, "shop-a-changelog")
    refuse_changes("shop", changes(after, control), {"a"})
    with pytest.raises(StartRefused, match="did without it"):
        start(before, control)


def test_lambdas_are_known_by_their_text_and_not_by_their_line() -> None:
    def graph(*functions: Callable[[dict[str, int]], int]) -> Graph:
        shop = Shop()
        for number, function in enumerate(functions):
            shop.sum(function, group=f"g{number}", store=f"s{number}")
        return shop.graph

    def field(name: str) -> Callable[[dict[str, int]], int]:
        return lambda order: order[name]

    before = graph(lambda order: order["cents"], lambda order: order["items"], field("a"))
    same = graph(
        lambda order: order["cents"],
        lambda order: order["items"],
        field("a"),
    )
    assert {c.verdict for c in changes(same, ran(before))} <= {Verdict.ROLLING}
    other = graph(lambda order: order["items"], lambda order: order["cents"], field("b"))
    found = {c.name: c.change for c in changes(other, ran(before)) if c.kind == "store"}
    assert found == {"s0": "store_taken", "s1": "store_taken", "s2": "store_function"}
