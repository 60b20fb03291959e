"""Aggregates whose value is a list of bounded length: ranks and distinct values.

A list is never changed in place: a record that fails leaves the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eosframework.engine.operators.folds import Fold, numbers
from eosframework.errors import KeyTooHot


def ranked(operator: str, by: Callable[[Any], Any], n: int, *, smallest_first: bool) -> Fold:
    """Return the fold that keeps the first `n` values in the order of `by(value)`.

    Of equal numbers the value that came first is first; where two sessions become one, the values
    of the earlier session are.
    """
    number = numbers(operator, by)

    def score(value: Any) -> Any:
        found = number(value)
        if found != found:
            raise TypeError(f"{operator} was given {found!r}, which has no place in an order")
        return -found if smallest_first else found

    def first(value: Any) -> list[Any]:
        score(value)
        return [value]

    def then(kept: list[Any], value: Any) -> list[Any]:
        found, place = score(value), len(kept)
        while place > 0 and score(kept[place - 1]) < found:
            place -= 1
        return [*kept[:place], value, *kept[place:]][:n]

    def merge(one: list[Any], other: list[Any]) -> list[Any]:
        for value in other:
            one = then(one, value)
        return one

    return Fold(first, then, merge)


def distinct(by: Callable[[Any], Any], limit: int) -> Fold:
    """Return the fold that lists the different `by(value)`, in the order in which they came."""

    def member(value: Any) -> str | int:
        found = by(value)
        if type(found) is not str and type(found) is not int:
            raise TypeError(
                f"distinct takes texts and whole numbers, and its function returned "
                f"{type(found).__name__}: {found!r:.80}; return text for it, as str(…)"
            )
        return found

    def extended(kept: list[Any], members: list[Any]) -> list[Any]:
        new = [found for found in members if found not in kept]
        if len(kept) + len(new) > limit:
            raise KeyTooHot(
                f"its key would have more than {limit} distinct values, as {new[-1]!r:.80}; raise "
                f"limit: of distinct, or make the windows shorter"
            )
        return [*kept, *new] if new else kept

    return Fold(
        lambda value: [member(value)], lambda kept, value: extended(kept, [member(value)]), extended
    )
