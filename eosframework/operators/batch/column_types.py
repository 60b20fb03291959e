"""The JSON values that each column type accepts, and their conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eosframework.errors import TopologyError
from eosframework.operators.batch.arrow import arrow

_types: Any = arrow.types

_LISTS = (_types.is_list, _types.is_large_list, _types.is_fixed_size_list)


class JsonColumns:
    """Converts JSON objects to columns, one for each field.

    Values are never coerced: 1.5 is not an integer and a number is not a text. Two exceptions
    exist: `true` counts as 1 where a float is expected, and an integer that a float cannot
    represent is rounded.

    Args:
        fields: pyarrow fields, with name and type.

    Raises:
        TopologyError: no JSON value can have such a type.
    """

    def __init__(self, fields: Sequence[Any]) -> None:
        self._fields = fields
        self._as_read = {field.name: _as_read(field.type) for field in fields}
        self._rows = arrow.struct(list(self._as_read.items()))
        self._looked_into = [
            name for name, kind in self._as_read.items() if _is_bent_by_pyarrow(kind)
        ]
        for field in fields:
            _require_readable(field, self._as_read[field.name])

    def of(self, objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return pyarrow arrays by name.

        Raises:
            ValueError: a value of one of the objects does not have its column's type, or must be
                rounded, which happens only for a single object.
        """
        for name in self._looked_into:
            values = [one.get(name) for one in objects]
            _refuse_others(name, values, self._as_read[name])
        try:
            columns = self._array(objects).flatten()
            return {
                field.name: column if column.type == field.type else column.cast(field.type)
                for field, column in zip(self._fields, columns, strict=True)
            }
        except (arrow.ArrowException, OverflowError) as error:
            raise ValueError(f"the value does not fit its columns: {error}") from error

    def _array(self, objects: Sequence[dict[str, Any]]) -> Any:
        try:
            return arrow.array(objects, self._rows)
        except (arrow.ArrowInvalid, OverflowError):
            if len(objects) > 1:
                raise
            return arrow.array([self._rounded(objects[0])], self._rows)

    def _rounded(self, one: dict[str, Any]) -> dict[str, Any]:
        """Return an object with floats where pyarrow would refuse to round an integer."""
        floats = [name for name, kind in self._as_read.items() if _types.is_floating(kind)]
        return one | {name: float(one[name]) for name in floats if type(one.get(name)) is int}


def _as_read(kind: Any) -> Any:
    """Return the type that values have in JSON; types unknown to JSON are read as text."""
    if _types.is_integer(kind) or _types.is_boolean(kind) or _types.is_string(kind):
        return kind
    if _types.is_floating(kind):
        return arrow.float64()
    if any(test(kind) for test in _LISTS):
        return arrow.list_(_as_read(kind.value_type))
    if _types.is_struct(kind):
        return arrow.struct([(field.name, _as_read(field.type)) for field in kind])
    return arrow.string()


def _is_bent_by_pyarrow(kind: Any) -> bool:
    """Return whether pyarrow would coerce other values to a type: it truncates 1.5 to 1."""
    return _types.is_integer(kind) or _types.is_nested(kind)


def _require_readable(field: Any, as_read: Any) -> None:
    try:
        arrow.array([], as_read).cast(field.type)
    except arrow.ArrowException as error:
        raise TopologyError(
            f"column {field.name!r} is of type {field.type}, which cannot be read from JSON "
            f"({error}); read it as {as_read} and cast it in the function"
        ) from error


def _refuse_others(name: str, values: Sequence[Any], kind: Any) -> None:
    found = set(map(type, values))
    found.discard(type(None))
    if any(test(kind) for test in _LISTS):
        _require(name, found, {list}, kind)
        inner = [member for value in values if value is not None for member in value]
        _refuse_others(f"{name}[]", inner, kind.value_type)
    elif _types.is_struct(kind):
        _require(name, found, {dict}, kind)
        for field in kind:
            inner = [value.get(field.name) for value in values if value is not None]
            _refuse_others(f"{name}.{field.name}", inner, field.type)
    elif _types.is_boolean(kind):
        _require(name, found, {bool}, kind)
    elif _types.is_integer(kind):
        _require(name, found, {int}, kind)
    elif _types.is_floating(kind):
        _require(name, found, {int, float}, kind)
    else:
        _require(name, found, {str}, kind)


def _require(name: str, found: set[type], allowed: set[type], kind: Any) -> None:
    if others := found - allowed:
        shown = " or ".join(sorted(other.__name__ for other in others))
        raise ValueError(f"field {name!r} is of type {shown}, its column {kind}")
