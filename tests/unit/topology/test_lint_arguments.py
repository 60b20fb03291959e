"""Functions that their place in a topology cannot call."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import pytest

from eosframework import Topology
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.lint.lint_steps import wrong_arguments

BY_COUNT = [
    (("streams", "s", "steps", 0, "filter"), 1),
    (("streams", "s", "steps", 0, "map"), 1),
    (("streams", "s", "steps", 0, "group_by", "by"), 1),
    (("streams", "s", "steps", 0, "process", "call"), 2),
    (("streams", "s", "steps", 0, "process", "on_timer"), 3),
    (("streams", "s", "steps", 0, "process", "stores", "sums", "upgrade"), 2),
    (("streams", "s", "steps", 0, "sum", "of"), 1),
    (("streams", "s", "steps", 0, "sum", "upgrade"), 2),
    (("streams", "s", "steps", 0, "reduce", "add"), 2),
    (("streams", "s", "steps", 0, "aggregate", "initial"), 0),
    (("streams", "s", "steps", 0, "aggregate", "add"), 2),
    (("streams", "s", "steps", 0, "aggregate", "merge"), 2),
    (("streams", "s", "steps", 0, "deduplicate", "by"), 1),
    (("streams", "s", "steps", 0, "join", "by"), 2),
    (("streams", "s", "steps", 0, "join", "key"), 1),
    (("streams", "s", "steps", 0, "map_batch", "call"), 1),
    (("streams", "s", "to", 0, "topic_from"), 1),
    (("streams", "s", "to", 0, "row"), 1),
    (("streams", "s", "branch", "late"), 1),
    (("sources", "s", "timestamp"), 1),
]

TAKING: list[Any] = [
    lambda: None,
    lambda a: a,
    lambda a, b: (a, b),
    lambda a, b, c: (a, b, c),
]


@pytest.mark.parametrize(("path", "count"), BY_COUNT, ids=lambda given: str(given))
def test_a_function_is_refused_unless_it_takes_what_its_place_gives(path: Any, count: int) -> None:
    for takes, function in enumerate(TAKING):
        found = wrong_arguments(path, "m:f", function)
        assert (found is None) == (takes == count), found
        if found is not None:
            assert "no argument" in found if count == 0 else f"{count} argument" in found


@pytest.mark.parametrize(
    "function",
    [
        str.lower,
        int,
        dict,
        partial(TAKING[2], 1),
        operator.itemgetter("n"),
        lambda value, limit=3: value > limit,
        lambda *values: values,
    ],
)
def test_whatever_can_be_called_with_a_value_is_let_pass(function: Any) -> None:
    path = ("streams", "s", "steps", 0, "map_values")
    assert wrong_arguments(path, "m:f", function) is None


def test_lint_names_the_place_the_function_and_its_arguments() -> None:
    app = Topology("counted")
    app.stream("raw", key=str, value=dict).filter(TAKING[2]).to("out", value="json")  # the mistake
    [finding] = lint(app.loaded())
    assert finding.rule == "arguments"
    assert "1 argument (the value), which (a, b) does not take: missing" in finding.message
