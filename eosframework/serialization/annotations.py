"""Types as functions state them: what a function returns, and the names of types in messages."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from eosframework.errors import TopologyError, raised_by_functions
from eosframework.serialization import references


class Unknown:
    """The type of what nothing is known of."""


UNKNOWN = Unknown()


def returned_type(function: Any) -> Any:
    """Return the type that a function's annotation says it returns; UNKNOWN: it says none.

    Args:
        function: or a class, which returns its instances, a partial or an object with `__call__`.

    Raises:
        TopologyError: the annotation is a text that cannot be resolved; names its place.
    """
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    if isinstance(function, type):
        return cast("type[Any]", function)
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = getattr(function.__class__, "__call__", None)  # noqa: B004 - its annotations
    annotation = getattr(function, "__annotations__", {}).get("return", UNKNOWN)
    if isinstance(annotation, str):
        annotation = _resolved(function, annotation)
    return types.NoneType if annotation is None else annotation


def _resolved(function: Any, text: str) -> Any:
    """Return the type in a text, as in the module of the function."""

    def stub() -> None: ...

    stub.__annotations__ = {"return": text}
    known = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(stub, known, include_extras=True)["return"]
    except raised_by_functions() as error:
        raise TopologyError(
            f"the annotation of {references.place_of(function)} returns {text!r}, which cannot be "
            f"resolved: {error}; define the type in its module and import it outside of `if "
            f"TYPE_CHECKING`, or state the serde"
        ) from error


def stripped(annotation: Any) -> Any:
    """Return a type without what makes no difference to its values: None, aliases, new names."""
    while True:
        origin = get_origin(annotation)
        if is_alias(annotation):
            annotation = getattr(annotation, "__supertype__", None) or annotation.__value__
        elif origin in (Union, types.UnionType):
            kept = [part for part in get_args(annotation) if part is not types.NoneType]
            if len(kept) == len(get_args(annotation)):
                return annotation
            annotation = Union[tuple(kept)]  # noqa: UP007 - of parts that are counted here
        else:
            return annotation


def is_known(annotation: Any) -> bool:
    """Return whether a type says anything about its values."""
    says_nothing = annotation in (UNKNOWN, Any, object, types.NoneType)
    return not (says_nothing or isinstance(annotation, TypeVar | typing.ParamSpec))


def is_type(found: Any) -> bool:
    """Return whether an object is a type: a class, an alias of one, or a type of other types."""
    return isinstance(found, type) or get_origin(stripped(found)) is not None or is_alias(found)


def is_alias(found: Any) -> bool:
    """Return whether an object is a name for a type."""
    return isinstance(found, typing.NewType) or type(found).__name__ == "TypeAliasType"


def element_of(annotation: Any) -> Any:
    """Return the type of the members of an iterable; UNKNOWN: it is none, or says nothing."""
    annotation = stripped(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if not (isinstance(origin, type) and issubclass(origin, Iterable)) or not arguments:
        return UNKNOWN
    if issubclass(origin, Mapping):
        return arguments[0]
    same = all(each in (arguments[0], ...) for each in arguments)
    return arguments[0] if same or not issubclass(origin, tuple) else UNKNOWN


def pair_of(annotation: Any, record: type) -> tuple[Any, Any]:
    """Return the types of key and value of a record, or of a tuple of both.

    Args:
        annotation: of one record or of a pair; another says nothing about either.
        record: the class of records, whose parameters are key and value.
    """
    annotation = stripped(annotation)
    arguments = get_args(annotation)
    if get_origin(annotation) in (record, tuple) and len(arguments) == 2 and ... not in arguments:
        return arguments
    return UNKNOWN, UNKNOWN


def type_name(annotation: Any) -> str:
    """Return a type as a text: `list[shop:Order]`. The reference of a class is its name."""
    if annotation in (types.NoneType, None):
        return "None"
    if annotation is ...:
        return "..."
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_name, arguments))
    if origin is Annotated:
        return f"Annotated[{type_name(arguments[0])}, {', '.join(map(repr, arguments[1:]))}]"
    if origin is not None:
        return f"{type_name(origin)}[{', '.join(map(type_name, arguments))}]"
    if getattr(annotation, "__module__", None) == "builtins":
        return annotation.__qualname__
    named = references.name_of(annotation) or getattr(annotation, "__qualname__", None)
    return named or repr(annotation)
