"""What a fold cannot take is that record's error, also if it comes first."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest

from eosframework import Topology, dead_letter
from eosframework.engine.operators.folds import total
from eosframework.testing import TopologyTestDriver

NO_NUMBERS = [None, "x", "5", [1], {"a": 1}, True]


def amount(value: Any) -> Any:
    return value["amount"]


def results(fold: str, values: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and the amounts in dead letters."""
    app = Topology("app")
    keyed = app.stream("in", key=str, value="json").group_by_key()
    getattr(keyed, fold)(amount, **options).on_error(dead_letter("dead")).to("out")
    driver = TopologyTestDriver(app)
    for value in values:
        driver.send("in", {"amount": value}, key="k")
    driver.run()
    letters = [orjson.loads(letter.value) for letter in driver.read("dead")]
    return [r.value for r in driver.read("out")], [letter["amount"] for letter in letters]


@pytest.mark.parametrize("bad", NO_NUMBERS)
@pytest.mark.parametrize(("fold", "expected"), [("sum", 5), ("min", 2), ("max", 3)])
def test_a_first_value_that_is_no_number_is_that_records_error(
    fold: str, expected: int, bad: Any
) -> None:
    found, dead = results(fold, [bad, 2, bad, 3])
    assert (found[-1], dead) == (expected, [bad, bad])


def test_texts_have_an_order_if_the_value_is_declared_as_one() -> None:
    assert results("min", ["b", 1, "a", None], value="string") == (["b", "a"], [1, None])


@pytest.mark.parametrize("numbers", [[Decimal("0.1"), Decimal("0.2")], [Fraction(1, 3)], [1, 2.5]])
def test_numbers_of_other_kinds_are_added(numbers: list[Any]) -> None:
    fold = total(lambda value: value)
    found = fold.first(numbers[0])
    for number in numbers[1:]:
        found = fold.then(found, number)
    assert found == sum(numbers)
