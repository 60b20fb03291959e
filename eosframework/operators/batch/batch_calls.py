"""Calls of the user's functions over batches, with checks of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eosframework.errors import RunError
from eosframework.operators.batch.arrow import RecordBatch, arrow, compute
from eosframework.topology.graph.graph import Operator, Step
from eosframework.topology.spec.batch_columns import KEY_COLUMN, TIME_COLUMN


def call_of(step: Step) -> Callable[[RecordBatch], Any]:
    """Return a function that calls a batch operator and checks its result.

    It returns the new batch, or an array of booleans for a filter. It raises RunError if the result
    has the wrong type or length: this is not a fault of single records, so no record of the batch
    is processed.
    """
    function = step.function.call
    check = _checked_batch if step.operator is Operator.MAP_BATCH else _checked_mask

    def call(batch: RecordBatch) -> Any:
        return check(step.name, batch, function(batch))

    return call


def _checked_batch(what: str, before: RecordBatch, result: Any) -> RecordBatch:
    if not isinstance(result, arrow.RecordBatch):
        raise RunError(
            f"{what} returned {_kind_of(result)}; expected a pyarrow.RecordBatch, for example "
            f"pyarrow.record_batch({{'name': array}})"
        )
    _refuse_length(what, "rows", before, result.num_rows)
    for name in (KEY_COLUMN, TIME_COLUMN):
        if name in result.schema.names and not _is_same(before, result, name):
            raise RunError(
                f"{what} changed column {name}; records keep their key and time. Leave the column "
                f"as it is or out, and set a new key after this step, with select_key"
            )
    return result


def _checked_mask(what: str, before: RecordBatch, result: Any) -> Any:
    if isinstance(result, arrow.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, arrow.Array) or not arrow.types.is_boolean(result.type):
        raise RunError(
            f"{what} returned {_kind_of(result)}; expected a pyarrow array of booleans, for "
            f"example pyarrow.compute.greater(batch['price'], 10)"
        )
    _refuse_length(what, "booleans", before, len(result))
    return compute.fill_null(result, False)


def _refuse_length(what: str, of: str, before: RecordBatch, count: int) -> None:
    if count != before.num_rows:
        raise RunError(
            f"{what} returned {count:,} {of} for a batch of {before.num_rows:,}; expected one for "
            f"each row, in their order. To leave records out use filter_batch"
        )


def _is_same(before: RecordBatch, result: RecordBatch, name: str) -> bool:
    return name in before.schema.names and result.column(name).equals(before.column(name))


def _kind_of(result: Any) -> str:
    if isinstance(result, arrow.Array):
        return f"an array of {result.type}"
    return type(result).__name__
