"""Findings about functions that cannot be called with the arguments of their place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from eosframework.topology.spec.loaded import SpecPath

_VALUE = ("the value",)
_RECORD = ("the whole record",)
_UPGRADE = ("the bytes of an older value", "its version")

_BY_OPERATOR: dict[str, tuple[str, ...]] = {
    "select_key": _RECORD,
    "map": _RECORD,
    "flat_map": _RECORD,
    "topic_from": _RECORD,
    "row": _RECORD,
}
"""Arguments of functions that are named directly; of the others: the value."""

_BY_FIELD: dict[tuple[str, str], tuple[str, ...]] = {
    ("group_by", "by"): _RECORD,
    ("process", "call"): ("the whole record", "a context"),
    ("process", "on_timer"): ("the key", "the time", "a context"),
    ("map_batch", "call"): ("a batch",),
    ("filter_batch", "call"): ("a batch",),
    ("reduce", "add"): ("the aggregate", "a value"),
    ("aggregate", "add"): ("the aggregate", "a value"),
    ("aggregate", "initial"): (),
    ("aggregate", "merge"): ("the earlier aggregate", "the later one"),
    ("join", "by"): ("the value of this side", "the value of the other side"),
    ("join", "key"): _RECORD,
}
"""Arguments of functions in a field of an operator, by operator and field."""


def arguments_at(path: SpecPath) -> tuple[str, ...]:
    """Return the arguments with which the function at a place of the topology is called."""
    operator, field = str(path[-2]), str(path[-1])
    if field == "upgrade":
        return _UPGRADE
    return _BY_FIELD.get((operator, field), _BY_OPERATOR.get(field, _VALUE))


def wrong_arguments(path: SpecPath, reference: str, function: Callable[..., Any]) -> str | None:
    """Return why a function cannot be called at its place; None: it can, or cannot be inspected."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions may have none
        return None
    given = arguments_at(path)
    try:
        signature.bind(*given)
    except TypeError as error:
        listed = f"{len(given)} arguments ({', '.join(given)})" if given else "no argument"
        listed = listed.replace("1 arguments", "1 argument")
        return f"{reference!r} is called with {listed}, which {signature} does not take: {error}"
    return None
