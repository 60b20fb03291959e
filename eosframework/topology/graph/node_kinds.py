"""The kinds of nodes, the functions of users in them, and the policies for records that fail.

Functions that return None although their annotation excludes it.
None deletes: a tombstone, or the aggregate of a key. So a `return` that was forgotten is an error
of the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin

from eosframework.errors import TopologyError
from eosframework.serialization.annotations import UNKNOWN, returned_type


class Operator(StrEnum):
    """The operator of a step. The comment gives the function's signature."""

    FILTER = "filter"  # value -> bool
    MAP_VALUES = "map_values"  # value -> value
    FLAT_MAP_VALUES = "flat_map_values"  # value -> iterable of values
    PEEK = "peek"  # value -> ignored
    SELECT_KEY = "select_key"  # Record -> key
    MAP = "map"  # Record -> Record or (key, value)
    FLAT_MAP = "flat_map"  # Record -> iterable of Record or (key, value)
    PROCESS = "process"  # Record -> None or iterable of Record or (key, value)
    MAP_BATCH = "map_batch"  # RecordBatch -> RecordBatch of as many rows
    FILTER_BATCH = "filter_batch"  # RecordBatch -> array of booleans, one for each row
    MAP_ASYNC = "map_async"  # value -> awaitable of a value
    MAP_BATCH_ASYNC = "map_batch_async"  # list of values -> awaitable of a list
    FILTER_ASYNC = "filter_async"  # value -> awaitable of a bool
    FOR_EACH_ASYNC = "for_each_async"  # value -> awaitable, ignored
    CALL_ONCE = "call_once"  # (value, Effect) -> value or awaitable of one; in JSON
    BRANCH = "branch"  # value -> index into Step.branches, or None: the record is dropped


class FoldKind(StrEnum):
    """The way values become an aggregate. The comment gives the functions it takes, by name."""

    COUNT = "count"
    SUM = "sum"  # of: value -> number
    MIN = "min"  # of: value -> what is compared
    MAX = "max"  # of: value -> what is compared
    REDUCE = "reduce"  # add: (aggregate, value) -> aggregate
    AGGREGATE = "aggregate"  # initial: () -> aggregate; add: (aggregate, value) -> aggregate;
    # of session windows also merge: (aggregate, aggregate) -> aggregate
    COGROUP = "cogroup"  # initial: as above; add N: as above, of the values of input N; merge
    TOP = "top"  # by: value -> number
    BOTTOM = "bottom"  # by: value -> number
    DISTINCT = "distinct"  # by: value -> text or whole number
    # of grouped tables both also subtract: (aggregate, value) -> aggregate
    DEDUPLICATE = "deduplicate"  # by: value -> equal for duplicates; the record stays unchanged


class Policy(StrEnum):
    """The treatment of a record that cannot be processed."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class OnError:
    """A policy; `topic` is the dead-letter topic where the policy is `dead_letter`.

    Args:
        retry_ms: delays before each further attempt.
        replay: there is an internal topic for replayed dead letters.
    """

    policy: Policy = Policy.FAIL
    topic: str | None = None
    retry_ms: tuple[int, ...] = ()
    replay: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function with its name in messages (`flights:is_late`)."""

    name: str
    call: Callable[..., Any]


class JoinKind(StrEnum):
    """The kind of a join: which sides have results even without a match."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"

    @property
    def needs(self) -> tuple[bool, bool]:
        """True, for left and right, if a result needs that side."""
        return self is not JoinKind.OUTER, self is JoinKind.INNER


def tagged(number: int, value: Any) -> tuple[int, Any] | None:
    """Return a value of an input of a `cogroup` with the input's number, from 0."""
    return None if value is None else (number, value)


def input_number(call: Callable[..., Any]) -> int | None:
    """Return the number of the input whose values a function tags; None: it tags none."""
    return call.args[0] if isinstance(call, partial) and call.func is tagged else None


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


def none_refused(name: str) -> TypeError:
    """Return the error of a function that returned None.

    Args:
        name: of the function.
    """
    return TypeError(
        f"{name} returned None, which its annotation excludes; add the `return` that is missing, "
        f"or annotate it with `| None`"
    )


def refuse_none(name: str) -> NoReturn:
    """Raise because a function returned None; see `none_refused`."""
    raise none_refused(name)


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
