"""Conversion of JSON values of messages to columns of pyarrow, and back.

pyarrow is an optional dependency without type stubs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import orjson

from eosframework.errors import RunError, TopologyError
from eosframework.serialization.serdes import Serde
from eosframework.serialization.strict_json import read, write
from eosframework.topology.spec.batch_spec import KEY_COLUMN, TIME_COLUMN, Columns


def _required(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise TopologyError(
            "map_batch and filter_batch need pyarrow, which cannot be imported "
            f"({error}); install it: pip install 'eosframework[arrow]'"
        ) from error


arrow: Any = _required("pyarrow")
compute: Any = _required("pyarrow.compute")

RecordBatch = Any
"""A `pyarrow.RecordBatch`."""


_types: Any = arrow.types

_LISTS = (_types.is_list, _types.is_large_list, _types.is_fixed_size_list)


class _JsonColumns:
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


_MARK = secrets.randbits(62)
_BETWEEN = b",%d," % _MARK


class Message(Protocol):
    """The part of a message that a reader needs."""

    def key(self) -> bytes | None:
        """The encoded key."""
        ...

    def value(self) -> bytes | None:
        """The encoded value; None is a tombstone."""
        ...


class Reader:
    """Reads the declared columns of messages.

    Args:
        columns: the declared columns; other fields are ignored.
        key: serde of the messages' keys.
        time_of: returns a message's event time in milliseconds.

    Raises:
        TopologyError: a column's type cannot be read from JSON.
    """

    def __init__(self, columns: Columns, key: Serde, time_of: Callable[[Any], int]) -> None:
        self._schema = _schema_of(columns)
        self._key = key
        self._time_of = time_of
        self._required = [name for name, _ in columns.types if name in columns.required]
        fields = [field for field in self._schema if not _is_of_record(field.name)]
        self._of_values = _JsonColumns(fields) if fields else None
        self._has_own = len(fields) < len(self._schema)

    def read(self, messages: Sequence[Message], values: Sequence[bytes]) -> RecordBatch:
        """Return messages as rows.

        Args:
            messages: at least one.
            values: their values.

        Raises:
            Exception: at least one of them does not fit.
        """
        columns = self._of_values.of(objects_of(values)) if self._of_values else {}
        if self._has_own:
            columns |= self._own_columns(messages)
        for name in self._required:
            if columns[name].null_count:
                raise ValueError(f"field {name!r} is null or missing, and its column is required")
        names = self._schema.names
        return arrow.RecordBatch.from_arrays([columns[name] for name in names], names=names)

    def _own_columns(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Return the columns of key and time."""
        found: dict[str, Any] = {}
        for field in self._schema:
            if field.name == KEY_COLUMN:
                decode = self._key.decode
                keys: list[Any] = [message.key() for message in messages]
                if decode is not None:
                    keys = [None if key is None else decode(key) for key in keys]
                found[field.name] = arrow.array(keys, field.type)
            elif field.name == TIME_COLUMN:
                times = [self._time_of(message) for message in messages]
                found[field.name] = arrow.array(times, arrow.int64()).cast(field.type)
        return found


def objects_of(values: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the JSON object of each value.

    All values are parsed as one JSON list, with a random number between any two, which a producer
    of values cannot guess. If that number is every second element and nothing remains, each value
    is exactly one element: a value with no element, several elements, or an open bracket would
    shift the numbers or absorb one.

    Raises:
        Exception: at least one of them is not a JSON object.
    """
    if len(values) == 1:
        objects = [read(values[0])]
    else:
        elements = read(b"[" + _BETWEEN.join(values) + b"]")
        between = len(values) - 1
        if len(elements) != len(values) + between or elements[1::2] != [_MARK] * between:
            raise ValueError("a value is not one JSON object")
        objects = elements[::2]
    if set(map(type, objects)) != {dict}:
        raise ValueError("the value is no JSON object; batch operators read objects only")
    return objects


def _schema_of(columns: Columns) -> Any:
    """Return columns as pyarrow's schema."""
    if columns.arrow is not None:
        return columns.arrow
    return arrow.schema(
        [
            arrow.field(name, _type_named(kind), nullable=name not in columns.required)
            for name, kind in columns.types
        ]
    )


def _type_named(kind: str) -> Any:
    if kind.startswith("timestamp["):
        unit, _, zone = kind.removeprefix("timestamp[").removesuffix("]").partition(", tz=")
        return arrow.timestamp(unit, zone or None)
    return getattr(arrow, kind.replace("bool", "bool_"))()


def _is_of_record(name: str) -> bool:
    return name in (KEY_COLUMN, TIME_COLUMN)


_FORMATS = {
    arrow.int8(): "b",
    arrow.int16(): "h",
    arrow.int32(): "i",
    arrow.int64(): "q",
    arrow.uint8(): "B",
    arrow.uint16(): "H",
    arrow.uint32(): "I",
    arrow.uint64(): "Q",
    arrow.float32(): "f",
    arrow.float64(): "d",
}
"""The memory layout of numeric types, as `struct` codes."""

_FLOATS = (arrow.float32(), arrow.float64())

_PLAIN = (
    _types.is_boolean,
    _types.is_null,
    _types.is_string,
    _types.is_large_string,
    _types.is_timestamp,
    _types.is_date,
    _types.is_time,
)
_NESTED = (_types.is_list, _types.is_large_list, _types.is_fixed_size_list)


def refuse_unwritable(batch: RecordBatch, what: str) -> None:
    """Raise if a column cannot be written as JSON.

    Args:
        batch: the result of a function.
        what: the step that returned it, for the message.

    Raises:
        RunError: names the column.
    """
    names = batch.schema.names
    for field in batch.schema:
        if not _is_writable(field.type):
            raise RunError(
                f"{what} gives column {field.name!r} of type {field.type}, which has no form in "
                f"JSON; cast it, for example to float64 or string"
            )
        if names.count(field.name) > 1:
            raise RunError(f"{what} gives column {field.name!r} twice; a field has one value")


def json_rows(batch: RecordBatch) -> list[bytes]:
    """Return each row as a JSON object, without the columns of key and time.

    Raises:
        ValueError: some row contains NaN or an infinity.
    """
    names = [name for name in batch.schema.names if name not in (KEY_COLUMN, TIME_COLUMN)]
    if not names:
        return [b"{}"] * batch.num_rows
    template = _template(tuple(names))
    columns = [_texts(name, batch.column(name)) for name in names]
    return [template % row for row in zip(*columns, strict=True)]


@lru_cache(maxsize=128)
def _template(names: tuple[str, ...]) -> bytes:
    members = [orjson.dumps(name).replace(b"%", b"%%") + b":%b" for name in names]
    return b"{" + b",".join(members) + b"}"


def _texts(name: str, column: Any) -> Sequence[bytes]:
    kind = column.type
    if _types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if kind in _FORMATS or _types.is_boolean(kind):
        # No number's text has a comma.
        if kind in _FLOATS and compute.all(compute.is_finite(column)).as_py() is False:
            raise ValueError(
                f"column {name!r} has NaN or an infinity, which JSON has no number for"
            )
        return orjson.dumps(_numbers(column))[1:-1].split(b",")
    return [write(value) for value in column.to_pylist()]


def _numbers(column: Any) -> list[Any]:
    kind = column.type
    if column.null_count or kind not in _FORMATS:
        return column.to_pylist()
    width = kind.bit_width // 8
    start, length = column.offset * width, len(column) * width
    data: Any = memoryview(column.buffers()[1])[start : start + length]
    return data.cast("B").cast(_FORMATS[kind]).tolist()


def _is_writable(kind: Any) -> bool:
    if kind in _FORMATS or any(test(kind) for test in _PLAIN):
        return not (_types.is_timestamp(kind) and kind.unit == "ns")
    if _types.is_dictionary(kind):
        return _is_writable(kind.value_type)
    if any(test(kind) for test in _NESTED):
        return _is_writable(kind.value_type)
    return _types.is_struct(kind) and all(_is_writable(field.type) for field in kind)
