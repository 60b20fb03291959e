"""Folds of which the result shows every value and their order."""

from __future__ import annotations

from typing import Any


def empty() -> list[Any]:
    return []


def append(so_far: list[Any], value: Any) -> list[Any]:
    so_far.append(value)
    return so_far


def append_even(so_far: list[Any], value: Any) -> list[Any]:
    if value % 2:
        raise ValueError("odd")
    return append(so_far, value)


def joined(one: list[Any], other: list[Any]) -> list[Any]:
    return [*one, *other]


def itself(value: Any) -> Any:
    return value


def refuse_windows_of_13(result: Any) -> Any:
    if 13 in result.value:
        raise ValueError("unlucky")
    return result
