"""Typed functions over Arrow's untyped record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RecordBatch = Any
"""A batch of pyarrow."""

Table = Any
"""A table of pyarrow."""

BatchFunction = Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]
"""Maps the batches of a Spark partition, in order."""


def map_batches(frame: DataFrame, function: BatchFunction, schema: str) -> DataFrame:
    """Apply a function to each Spark partition, on the executors."""
    return cast(Any, frame).mapInArrow(function, schema)


def extended(batch: RecordBatch, columns: Mapping[str, tuple[str, Sequence[Any]]]) -> RecordBatch:
    """Return a batch with additional columns.

    Args:
        batch: the original.
        columns: Arrow type and values, by name.
    """
    arrow: Any = import_module("pyarrow")
    arrays = [arrow.array(values, kind) for kind, values in columns.values()]
    names = [*batch.schema.names, *columns]
    return arrow.RecordBatch.from_arrays([*batch.columns, *arrays], names)


def batch_of(rows: Sequence[Sequence[Any]], columns: Mapping[str, Any]) -> RecordBatch:
    """Return rows as a batch.

    Args:
        rows: their values, in column order.
        columns: Arrow types by name.
    """
    arrow: Any = import_module("pyarrow")
    values = zip(*rows, strict=True) if rows else [() for _ in columns]
    pairs = zip(values, columns.values(), strict=True)
    arrays = [arrow.array(list(column), kind) for column, kind in pairs]
    return arrow.RecordBatch.from_arrays(arrays, list(columns))


def rows_of(structs: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return an array of structs as dicts, and the names of their fields that are structs."""
    arrow: Any = import_module("pyarrow")
    batch = arrow.RecordBatch.from_struct_array(structs)
    nested = [field.name for field in batch.schema if arrow.types.is_struct(field.type)]
    return batch.to_pylist(maps_as_pydicts="strict"), nested


def headers_type() -> Any:
    """Return the Arrow type of record headers."""
    arrow: Any = import_module("pyarrow")
    return arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.binary())]))
