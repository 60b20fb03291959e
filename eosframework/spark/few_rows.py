"""The rows of a small batch, computed by Spark and collected in the driver.

A batch that one transaction can hold needs no stage: either all of its rows are committed, with the
record that it is complete, or none, and then it may be computed again with another result. Its rows
are computed by one Spark job, and no second one writes them.

The size of a batch is not known before it is computed. It is expected to be small if the last one
was. A batch that turns out larger is computed again, for its stage; nothing of it was written.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from eosframework.backfill.spark.arrow_batches import Table
from eosframework.backfill.spark.executor_failures import reason_of
from eosframework.spark.sink_entry import SinkBatch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FEW_ROWS = 10_000
"""Most rows of a small batch. One process writes them in less time than a second Spark job needs to
start."""

FEW_BYTES = 32 * 2**20
"""Largest small batch in memory."""

_ROW_OF_PARTITION = "(monotonically_increasing_id() & 8589934591L)"
"""The number of a row in its Spark partition: the lower 33 bits."""

_TOO_LARGE = "spark.driver.maxResultSize"
"""Named by Spark when a driver refuses results."""


def sink_rows(frame: DataFrame, column: Column) -> DataFrame:
    """Return what a sink writes of each row, in columns.

    Args:
        frame: the user's rows.
        column: what the sink writes of each row, as a struct.
    """
    return frame.select(column.alias("row")).select("row.*")


def are_few_expected(last: SinkBatch | None) -> bool:
    """Return whether the batch after a sink's last one is expected to be small."""
    return last is not None and last.complete and last.rows <= FEW_ROWS


def few_rows(frame: DataFrame, column: Column) -> Table | None:
    """Return the rows of a sink as a table of Arrow, in any order; None: they are too many.

    All rows are computed, so that a stateful plan keeps its state. A Spark partition with too many
    sends as many as it takes to notice that.

    Args:
        frame: the user's rows.
        column: what the sink writes of each row, as a struct.
    """
    arrow: Any = import_module("pyarrow")
    bounded = frame.select(column.alias("row")).filter(f"{_ROW_OF_PARTITION} <= {FEW_ROWS}")
    try:
        rows: Table = cast(Any, bounded).toArrow().column("row")
    except Exception as error:
        if _TOO_LARGE in reason_of(error):
            return None
        raise
    if len(rows) > FEW_ROWS or rows.nbytes > FEW_BYTES:
        return None
    return arrow.Table.from_struct_array(rows)
