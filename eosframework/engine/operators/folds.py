"""Aggregates as folds over the values of a key."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from numbers import Number
from typing import Any, cast
from uuid import UUID

from eosframework.engine.operators.entries import Entry
from eosframework.engine.operators.store_transaction import (
    StoreTransaction,
    Update,
    ValueTransaction,
)

Regroup = Callable[[bytes, Any, Any, int], Entry | None]
"""Takes the key of a group, the row to add, the row to take back and their timestamp; returns the
group's aggregate with its timestamp. None: there is still none."""

IMMUTABLE = frozenset(
    {type(None), bool, int, float, complex, str, bytes, Decimal, UUID}
    | {date, datetime, time, timedelta, timezone}
)
"""The most frequent types whose values no function can change."""


def owned(value: Any) -> Any:
    """Return a value that no other consumer can change: a copy, unless it is immutable."""
    kind = value.__class__
    if kind in IMMUTABLE:
        return value
    if kind is dict:
        members = cast("dict[Any, Any]", value)
        if all(member.__class__ in IMMUTABLE for member in members.values()):
            return members.copy()
        return _copied(members)
    if kind is list:
        return _copied(value)
    return value if _is_frozen(value) else deepcopy(value)


def _copied(value: Any) -> Any:
    """Return a copy of a tree; pickle, written in C, takes a fifth of the time of `deepcopy`."""
    try:
        return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    except Exception:  # A member of a class without a name, for example.
        return deepcopy(value)


def _is_frozen(value: Any) -> bool:
    """Return whether a value of another type is frozen, with frozen members."""
    if value.__class__ in IMMUTABLE or isinstance(value, Enum):
        return True
    if isinstance(value, tuple | frozenset):
        return all(map(_is_frozen, cast("tuple[Any, ...]", value)))
    kind = value.__class__
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        names = kind.__dataclass_fields__
    elif getattr(kind, "model_config", {}).get("frozen") is True:
        names = kind.model_fields
    else:
        return False
    return all(_is_frozen(getattr(value, name)) for name in names)


@dataclass(frozen=True, slots=True)
class Fold:
    """The functions of an aggregate.

    Args:
        first: returns the aggregate of the first value.
        then: returns the aggregate of the previous aggregate and a value; None deletes it.
        merge: returns the aggregate of two aggregates, the earlier one first; used by session
            windows.
        undo: returns the aggregate without a value that was folded into it; used by grouped tables.
    """

    first: Callable[[Any], Any]
    then: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    undo: Callable[[Any, Any], Any] | None = None


COUNT = Fold(
    lambda value: 1,
    lambda count, value: count + 1,
    operator.add,
    lambda count, value: count - 1,
)
"""The number of records."""


def total(of: Callable[[Any], Any]) -> Fold:
    """The sum of `of(value)`."""
    number = numbers("sum", of)
    return Fold(
        number,
        lambda so_far, value: so_far + number(value),
        operator.add,
        lambda so_far, value: so_far - number(value),
    )


def smallest(of: Callable[[Any], Any], *, of_texts: bool = False) -> Fold:
    """The smallest `of(value)`."""
    one = _texts("min", of) if of_texts else numbers("min", of)
    return Fold(one, lambda so_far, value: min(so_far, one(value)), min)


def greatest(of: Callable[[Any], Any], *, of_texts: bool = False) -> Fold:
    """The greatest `of(value)`."""
    one = _texts("max", of) if of_texts else numbers("max", of)
    return Fold(one, lambda so_far, value: max(so_far, one(value)), max)


def numbers(operator_: str, of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that refuses what is no number.

    Otherwise the first text would become the aggregate, and each number after it fail.
    """

    def number(value: Any) -> Any:
        found = of(value)
        if type(found) is int or type(found) is float:
            return found
        if type(found) is not bool and isinstance(found, Number | timedelta):
            return found
        has_texts = operator_ in ("min", "max")
        instead = ". Texts have an order with value: string" if has_texts else ""
        raise _refused(operator_, "numbers", found, instead)

    return number


def _texts(operator_: str, of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def text(value: Any) -> Any:
        found = of(value)
        if not isinstance(found, str):
            raise _refused(operator_, "texts (value: string)", found)
        return found

    return text


def _refused(operator_: str, what: str, found: Any, instead: str = "") -> TypeError:
    return TypeError(
        f"{operator_} takes {what}, and its function returned {type(found).__name__}: "
        f"{found!r:.80}{instead}"
    )


def reduction(
    function: Callable[[Any, Any], Any], undo: Callable[[Any, Any], Any] | None = None
) -> Fold:
    """The first value, then `function(aggregate, value)`."""
    return Fold(lambda value: value, function, function, undo)


def aggregation(
    initial: Callable[[], Any],
    add: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any] | None = None,
    undo: Callable[[Any, Any], Any] | None = None,
) -> Fold:
    """`add(aggregate, value)`, from `initial()` on, which may return one object each time."""
    return Fold(lambda value: add(owned(initial()), value), add, merge or _no_merge, undo)


def cogrouped(
    initial: Callable[[], Any],
    adds: Sequence[Callable[[Any, Any], Any]],
    merge: Callable[[Any, Any], Any] | None = None,
) -> Fold:
    """`adds[input](aggregate, value)` for values that `tagged` gave the number of their input."""

    def then(aggregate: Any, value: tuple[int, Any]) -> Any:
        return adds[value[0]](aggregate, value[1])

    return Fold(lambda value: then(owned(initial()), value), then, merge or _no_merge)


def owning(fold: Fold) -> Fold:
    """Return a fold for values that go into several windows: each gets a value of its own."""
    first, then = fold.first, fold.then
    return Fold(
        lambda value: first(owned(value)),
        lambda aggregate, value: then(aggregate, owned(value)),
        fold.merge,
    )


def folding(store: StoreTransaction, fold: Fold) -> Update:
    """Return the function that folds each record into the aggregate of its key.

    An aggregate's timestamp is the greatest of its records' timestamps, as in Kafka Streams
    (`KStreamAggregate`). An aggregate that becomes None is deleted.
    """
    first, then = fold.first, fold.then
    if isinstance(store, ValueTransaction):
        return store.counting() if fold is COUNT else store.folding(first, then)
    get, put, delete = store.get, store.put, store.delete

    def update(key: bytes, value: Any, timestamp: int) -> Entry:
        before = get(key)
        if before is None:
            entry = first(value), timestamp
        else:
            so_far, latest = before
            entry = then(so_far, value), timestamp if timestamp > latest else latest
        if entry[0] is None:
            delete(key)
        else:
            put(key, entry)
        return entry

    return update


def regrouping(store: StoreTransaction, fold: Fold) -> Regroup:
    """Return the function that folds the changes of a grouped table.

    As in Kafka Streams (`KTableAggregate`): the old row is taken back first, and a row whose group
    has no aggregate is not.
    """
    first, then, undo = fold.first, fold.then, fold.undo
    assert undo is not None, "lint requires it of grouped tables"
    get, put, delete = store.get, store.put, store.delete

    def update(key: bytes, new: Any, old: Any, timestamp: int) -> Entry | None:
        before = get(key)
        if before is None:
            if new is None:
                return None
            aggregate = first(new)
        else:
            aggregate, latest = before
            if latest > timestamp:
                timestamp = latest
            if old is not None:
                aggregate = undo(aggregate, old)
            if new is not None:
                aggregate = first(new) if aggregate is None else then(aggregate, new)
        if aggregate is not None:
            put(key, (aggregate, timestamp))
        elif before is not None:
            delete(key)
        return aggregate, timestamp

    return update


def _no_merge(one: Any, other: Any) -> Any:
    raise TypeError(
        "two sessions became one, and the aggregate declares no merge function; declare "
        "merge: module:function, which takes two aggregates and returns the merged one"
    )
