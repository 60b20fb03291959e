"""Conversion of the JSON values of messages to columns, all at once."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from eosframework.operators.batch.arrow import RecordBatch, arrow
from eosframework.operators.batch.column_types import JsonColumns
from eosframework.serialization.json_numbers import read
from eosframework.serialization.serdes import Serde
from eosframework.topology.spec.batch_columns import KEY_COLUMN, TIME_COLUMN, Columns

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
        self._schema = schema_of(columns)
        self._key = key
        self._time_of = time_of
        self._required = [name for name, _ in columns.types if name in columns.required]
        fields = [field for field in self._schema if not _is_of_record(field.name)]
        self._of_values = JsonColumns(fields) if fields else None
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


def schema_of(columns: Columns) -> Any:
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
