"""The functions over batches of the topologies that the fault tests run."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": pc.multiply(batch["n"], 2)})
