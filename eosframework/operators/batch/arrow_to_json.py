"""Conversion of columns to one JSON object per row, as the JSON serde writes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from eosframework.errors import RunError
from eosframework.operators.batch.arrow import RecordBatch, arrow, compute
from eosframework.serialization.strict_json import write
from eosframework.topology.spec.batch_columns import KEY_COLUMN, TIME_COLUMN

_types: Any = arrow.types

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
