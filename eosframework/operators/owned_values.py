"""Copies of values that two consumers would share: a step owns the value that it gets."""

from __future__ import annotations

import pickle
from copy import deepcopy
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

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
