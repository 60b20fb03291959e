"""A `return` that was forgotten is an error of the record, or a finding; it deletes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import pytest

from eosframework import Topology, dead_letter
from eosframework.testing import TopologyTestDriver
from eosframework.topology.graph.node_kinds import excludes_none
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.lint.lint_steps import returns_nothing
from eosframework.topology.spec.loaded import LoadedApp

Order = dict[str, Any]
NOW = 1_700_000_000_000


def doubled(order: Order) -> Order:  # type: ignore[return]
    if order["n"] != 1:
        return {"n": 2 * order["n"]}


def maybe(order: Order) -> Order | None:
    return None if order["n"] == 1 else order


def is_wanted(order: Order) -> bool:  # type: ignore[return]
    if order["n"] != 1:
        return True


def added(total: int, order: Order) -> int:  # type: ignore[return]
    if order["n"] != 1:
        return total + order["n"]


def forgets(order: Any):  # type: ignore[no-untyped-def]
    order["n"] = 3


def forgets_twice(order: Any):  # type: ignore[no-untyped-def]
    if order:
        return
    order["n"] = 3


def sometimes(order: Any):  # type: ignore[no-untyped-def]
    if order:
        return order


def says_none(order: Any) -> None:
    return None


def unresolved(order: Any) -> Missing:  # type: ignore[name-defined] # noqa: F821
    return None


def yields(order: Any):  # type: ignore[no-untyped-def]
    yield order


def run(app: Topology, *topics: str) -> list[list[Any]]:
    driver = TopologyTestDriver(app)
    for n in (0, 1, 2):
        driver.send("orders", {"n": n}, key="k", timestamp=NOW)
    driver.run()
    return [[record.value for record in driver.read(topic)] for topic in topics]


def orders(app: Topology) -> Any:
    return app.stream("orders", key=str, value=dict)


def test_a_none_that_the_annotation_of_map_values_excludes_is_the_records_error() -> None:
    app = Topology("shop")
    orders(app).map_values(doubled).on_error(dead_letter("dead")).to("out", value="json")
    assert run(app, "out", "dead") == [[{"n": 0}, {"n": 4}], [b'{"n":1}']]


def test_a_none_that_the_annotation_allows_is_a_tombstone() -> None:
    app = Topology("shop")
    orders(app).map_values(maybe).to("out", value="json")
    assert run(app, "out") == [[{"n": 0}, None, {"n": 2}]]


def test_a_none_of_a_filter_that_returns_a_bool_is_the_records_error() -> None:
    app = Topology("shop")
    orders(app).filter(is_wanted).on_error(dead_letter("dead")).to("out", value="json")
    assert run(app, "out", "dead") == [[{"n": 0}, {"n": 2}], [b'{"n":1}']]


def test_a_none_of_add_does_not_delete_the_aggregate() -> None:
    app = Topology("shop")
    kept = orders(app).on_error(dead_letter("dead")).group_by_key()
    kept.aggregate(int, added, store="sums", value=int).to("out", value=int)
    assert run(app, "out", "dead") == [[0, 2], [b'{"n":1}']]


def test_a_null_of_json_is_a_tombstone() -> None:
    app = Topology("shop")
    orders(app).to("out", value="json")
    driver = TopologyTestDriver(app)
    driver.send("orders", b"null", key="k", timestamp=NOW)
    driver.run()
    assert [record.value for record in driver.read("out")] == [None]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (doubled, True),
        (is_wanted, True),
        (maybe, False),
        (forgets, False),
        (says_none, False),
        (unresolved, False),
        (len, False),
        (dict, False),
    ],
)
def test_only_an_annotation_without_none_excludes_it(
    function: Callable[..., Any], expected: bool
) -> None:
    assert excludes_none(function) is expected


def test_an_optional_of_typing_takes_none() -> None:
    def found(order: Order) -> Optional[Order]:  # noqa: UP045
        return None

    assert not excludes_none(found)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (forgets, True),
        (forgets_twice, True),
        (sometimes, False),
        (says_none, False),
        (yields, False),
        (maybe, False),
        (lambda order: None, False),
        (print, False),
    ],
)
def test_functions_that_can_only_return_none_are_found(function: Any, expected: bool) -> None:
    assert returns_nothing(function) is expected


def test_lint_warns_of_a_forgotten_return() -> None:
    app = Topology("shop")
    orders(app).map_values(forgets).to("out", value="json")
    [finding] = [f for f in lint(LoadedApp(app.spec)) if f.rule == "returns-nothing"]
    assert "always returns None" in finding.message
