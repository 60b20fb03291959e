"""The text that a function is recognized by, wherever its lines move."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import pytest

from eosframework.serialization.references import identity_of, name_of, place_of


def identity(function: Any) -> str:
    return identity_of(name_of(function) or place_of(function), function)


def field(name: str) -> Callable[[Any], Any]:
    def of(value: Any) -> Any:
        return value[name]

    return of


class Field:
    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, value: Any) -> Any:
        return value[self._name]


ONE, OTHER = lambda v: v["a"], lambda v: (lambda w: w)(v["b"])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (identity, f"{__name__}:identity"),
        (os.path.join, "posixpath:join"),
        (ONE, "lambda v: v['a']"),
        (OTHER, "lambda v: (lambda w: w)(v['b'])"),
        (itemgetter("cents"), "operator.itemgetter('cents')"),
        (Field("secret"), "Field"),
        (eval("lambda v: v"), "<lambda>"),
    ],
)
def test_each_kind_of_function_has_a_text(function: Any, expected: str) -> None:
    assert identity(function) == expected


def _partly(name: str) -> Callable[[Any], Any]:
    return partial(getattr, name)


def _with_default(name: str) -> Callable[[Any], Any]:
    return lambda value, key=name: value[key]


def test_values_that_a_function_takes_along_count_and_are_not_shown() -> None:
    for make in (field, lambda name: lambda v: v[name], _partly, _with_default):
        one, same, other = (identity(make(name)) for name in ("secret", "secret", "other"))
        assert one == same != other
        assert "secret" not in one
