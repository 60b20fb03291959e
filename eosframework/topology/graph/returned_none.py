"""Functions that return None although their annotation excludes it.

None deletes: a tombstone, or the aggregate of a key. So a `return` that was forgotten is an error
of the record.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin

from eosframework.errors import TopologyError
from eosframework.serialization.annotations import UNKNOWN, returned_type
from eosframework.topology.graph.node_kinds import Function


def excludes_none(function: Callable[..., Any]) -> bool:
    """Return whether a function is annotated with a return type that None is not of."""
    if isinstance(function, type):
        return False
    try:
        annotation = returned_type(function)
    except TopologyError:  # A name that cannot be resolved.
        return False
    return annotation is not UNKNOWN and not _takes_none(annotation)


def _takes_none(annotation: Any) -> bool:
    if annotation in (None, NoneType, Any, object) or isinstance(annotation, TypeVar | str):
        return True
    if get_origin(annotation) in (Union, UnionType):
        return any(map(_takes_none, get_args(annotation)))
    return not isinstance(annotation, type) and get_origin(annotation) is None


def refuse_none(name: str) -> NoReturn:
    """Raise because a function returned None.

    Args:
        name: of the function.

    Raises:
        TypeError: always.
    """
    raise TypeError(
        f"{name} returned None, which its annotation excludes; add the `return` that is missing, "
        f"or annotate it with `| None`"
    )


def with_value(function: Function) -> Callable[..., Any]:
    """Return the function's call; a None that its annotation excludes is an error."""
    call = function.call
    if not excludes_none(call):
        return call

    def called(*given: Any) -> Any:
        result = call(*given)
        if result is None:
            refuse_none(function.name)
        return result

    return called
