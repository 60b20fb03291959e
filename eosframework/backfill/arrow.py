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
