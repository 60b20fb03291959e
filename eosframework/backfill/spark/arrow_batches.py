"""Arrow's record batches, which have no types, behind functions that have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RecordBatch = Any
"""Of pyarrow."""

BatchFunction = Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]
"""Takes the batches of a Spark partition in their order and gives others."""


def map_batches(frame: DataFrame, function: BatchFunction, schema: str) -> DataFrame:
    """Return what a function makes of each Spark partition, on the executors."""
    return cast(Any, frame).mapInArrow(function, schema)


def extended(batch: RecordBatch, columns: Mapping[str, tuple[str, Sequence[Any]]]) -> RecordBatch:
    """Return a batch with more columns.

    Args:
        batch: as it is.
        columns: Arrow's type and the values of each, by name.
    """
    arrow: Any = import_module("pyarrow")
    arrays = [arrow.array(values, kind) for kind, values in columns.values()]
    names = [*batch.schema.names, *columns]
    return arrow.RecordBatch.from_arrays([*batch.columns, *arrays], names)


def batch_of(rows: Sequence[Sequence[Any]], columns: Mapping[str, Any]) -> RecordBatch:
    """Return rows as a batch.

    Args:
        rows: their values, in the order of the columns.
        columns: Arrow's type of each, by name.
    """
    arrow: Any = import_module("pyarrow")
    values = zip(*rows, strict=True) if rows else [() for _ in columns]
    pairs = zip(values, columns.values(), strict=True)
    arrays = [arrow.array(list(column), kind) for column, kind in pairs]
    return arrow.RecordBatch.from_arrays(arrays, list(columns))


def headers_type() -> Any:
    """Return Arrow's type of the headers of rows."""
    arrow: Any = import_module("pyarrow")
    return arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.binary())]))
