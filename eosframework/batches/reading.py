"""From the JSON values of messages to columns, all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from eosframework.batches.arrow import RecordBatch, arrow, json_reader
from eosframework.serdes import Serde
from eosframework.topology.batched import KEY_COLUMN, TIME_COLUMN, Columns

LARGEST_BYTES = 1 << 30
"""Of values that are read at once; Arrow counts the bytes of a column's texts with 32 bits."""

_WHITESPACE = b" \t\r\n"


class Message(Protocol):
    """What is read of a message."""

    def key(self) -> bytes | None:
        """The encoded key."""
        ...

    def value(self) -> bytes | None:
        """The encoded value; None is a tombstone."""
        ...


class Reader:
    """Reads the declared columns of messages.

    Args:
        columns: those that are wanted; other fields are passed over.
        key: serde of the messages' keys.
        time_of: gives a message's event time in milliseconds.
    """

    def __init__(self, columns: Columns, key: Serde, time_of: Callable[[Any], int]) -> None:
        self._schema = schema_of(columns)
        self._key = key
        self._time_of = time_of
        self._required = [name for name, _ in columns.types if name in columns.required]
        nullable = [f.with_nullable(True) for f in self._schema if not _is_of_record(f.name)]
        self._fields = arrow.schema(nullable)
        self._parsing = json_reader.ParseOptions(
            explicit_schema=self._fields, unexpected_field_behavior="ignore"
        )
        self._has_texts = any(not _is_number(field.type) for field in nullable)
        self._has_own = len(nullable) < len(self._schema)

    def read(self, messages: Sequence[Message], values: Sequence[bytes]) -> RecordBatch:
        """Return messages as rows.

        Args:
            messages: at least one.
            values: theirs.

        Raises:
            ValueError: one of them at least does not fit; which one is not said.
        """
        batch: RecordBatch = self._read_values(values) if len(self._fields) else None
        if self._has_own:
            batch = arrow.RecordBatch.from_arrays(
                [self._column(field, batch, messages) for field in self._schema],
                names=self._schema.names,
            )
        for name in self._required:
            if batch.column(name).null_count:
                raise ValueError(f"field {name!r} is null or missing, and its column is required")
        return batch

    def _column(self, field: Any, batch: RecordBatch, messages: Sequence[Message]) -> Any:
        match field.name:
            case name if name == KEY_COLUMN:
                decode = self._key.decode
                keys: list[Any] = [message.key() for message in messages]
                if decode is not None:
                    keys = [None if key is None else decode(key) for key in keys]
                return arrow.array(keys, field.type)
            case name if name == TIME_COLUMN:
                times = [self._time_of(message) for message in messages]
                return arrow.array(times, arrow.int64()).cast(field.type)
            case name:
                return batch.column(name)

    def _read_values(self, values: Sequence[bytes]) -> RecordBatch:
        data = b"\n".join(values)
        if not _is_a_line_each(data, len(values)):
            # A tab is whitespace between the parts of JSON and refused within a text, as is \n.
            data = b"\n".join([v.strip(_WHITESPACE).replace(b"\n", b"\t") for v in values])
            if not _is_a_line_each(data, len(values)):
                raise ValueError("the value is no JSON object; batch operators read objects only")
        if len(data) > LARGEST_BYTES:
            raise ValueError(f"{len(data):,} bytes are too many to be read at once")
        block_size = max(len(data) + 1, 1 << 16)  # all of it, so that one batch has every row
        options = json_reader.ReadOptions(use_threads=False, block_size=block_size)
        try:
            batch = json_reader.open_json(
                arrow.BufferReader(data), options, self._parsing
            ).read_next_batch()
        except arrow.ArrowInvalid as error:
            detail = str(error).removesuffix(" in row 0")
            raise ValueError(f"the value does not fit the columns: {detail}") from error
        if batch.num_rows != len(values):
            raise ValueError("the value is more than one JSON object")
        if self._has_texts and not data.isascii():
            batch.validate(full=True)
        return batch


def schema_of(columns: Columns) -> Any:
    """Return columns as pyarrow's schema."""
    if columns.arrow is not None:
        return columns.arrow
    return arrow.schema(
        [
            arrow.field(name, _type_of(kind), nullable=name not in columns.required)
            for name, kind in columns.types
        ]
    )


def _type_of(kind: str) -> Any:
    if kind.startswith("timestamp["):
        return arrow.timestamp(kind.removeprefix("timestamp[").removesuffix("]"))
    return getattr(arrow, kind.replace("bool", "bool_"))()


def _is_a_line_each(data: bytes, count: int) -> bool:
    r"""Tell whether each of `count` values lies on a line of its own, as one object or several.

    Between any two of them lies `}\n{`, and no other line ends. Such a line can neither go on with
    the object of the one before, since no text may contain a line's end and no part of JSON begins
    with { behind a }, nor leave its own to the next. So if there are as many objects as lines,
    each line has its own.
    """
    return (
        data.startswith(b"{")
        and data.endswith(b"}")
        and data.count(b"\n") == count - 1
        and data.count(b"}\n{") == count - 1
    )


def _is_of_record(name: str) -> bool:
    return name in (KEY_COLUMN, TIME_COLUMN)


def _is_number(kind: Any) -> bool:
    types = arrow.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
