"""Functions over batches, and what they do to a single record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are made when it is imported

Value = dict[str, Any]

SCHEMA = {"price": "float64", "count": "int64", "name": "string"}


def totals(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Multiply, whole columns at once."""
    total = pc.multiply(batch["price"], pc.cast(batch["count"], pa.float64()))
    return pa.record_batch({"name": batch["name"], "total": total})


def total(value: Value) -> Value:
    """Multiply for one record."""
    price, count = value.get("price"), value.get("count")
    found = None if price is None or count is None else float(price) * float(count)
    return {"name": value.get("name"), "total": found}


def dear(batch: pa.RecordBatch) -> pa.Array:
    """Return which prices are above ten."""
    return pc.greater(batch["price"], 10.0)


def is_dear(value: Value) -> bool:
    """Return whether the price is above ten."""
    return (value.get("price") or 0) > 10


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Double the totals."""
    return batch.set_column(1, "total", pc.multiply(batch["total"], 2.0))


def double(value: Value) -> Value:
    """Double one total."""
    found = value["total"]
    return {**value, "total": None if found is None else found * 2}


def strict(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Fail where a count is 13."""
    if pc.any(pc.equal(batch["count"], 13)).as_py():
        raise ValueError("thirteen is not served")
    return batch


def ranked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Number the rows, which depends on how records are cut into batches."""
    return batch.append_column("rank", pa.array(range(batch.num_rows)))


def first_only(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a row where one for each is promised."""
    return batch.slice(0, 1)
