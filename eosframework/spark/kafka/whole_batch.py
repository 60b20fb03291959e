"""A small batch in one transaction of the driver: all rows, and the entry that it is complete (S6).

The rows are those that attempts would write, shard after shard, with the same receipts. No attempt
can write them as well: the entry is the first one that names the batch, and it is complete.
"""

from __future__ import annotations

import structlog

from eosframework.backfill.spark.arrow_batches import Table
from eosframework.errors import DataRejected
from eosframework.processing.attempts.ownership import Ownership
from eosframework.processing.ports import Output
from eosframework.spark.kafka.columns import in_order, pieces_of
from eosframework.spark.kafka.receipts import receipts_of
from eosframework.spark.sink_entry import SinkBatch

MOST_TRANSACTIONS = 3
"""Transactions without success, as if they take too long, after which executors cut the batch."""


def outputs_of(
    rows: Table, topic: str | None, application: str, sink: str, batch: SinkBatch
) -> tuple[list[Output], dict[int, int]]:
    """Return the records of a batch, and the number of rows by shard.

    Args:
        rows: all of them, in any order; columns as of `KafkaColumns.column`.
        topic: of all records; None: of their column.
        application: owner of the sink.
        sink: its name.
        batch: with the positions before it.
    """
    outputs: list[Output] = []
    counts: dict[int, int] = {}
    for piece in pieces_of(in_order(rows).to_batches(), topic):
        first = counts.get(piece.shard, 0)
        counts[piece.shard] = first + len(piece.rows)
        receipts = receipts_of(application, sink, piece.shard, batch)
        made = piece.rows.outputs
        outputs += made if receipts is None else receipts.added(made, first)
    return outputs, counts


def commit_whole(
    ownership: Ownership[SinkBatch], outputs: list[Output], complete: SinkBatch
) -> bool:
    """Commit a batch, and return whether it is committed; if not, nothing of it is visible.

    Args:
        ownership: of the sink.
        outputs: the records of all rows.
        complete: the entry of the batch once it is complete.

    Raises:
        InstanceFenced: another driver owns the sink.
        RunError: no transaction can succeed until the cause is fixed.
        ClusterUnreachable: no transaction was committed for long.
    """
    rejected: list[DataRejected] = []
    of_entries, ownership.on_reject = ownership.on_reject, rejected.append
    try:
        for _ in range(MOST_TRANSACTIONS):
            if ownership.write(outputs, complete):
                return True
            if rejected:
                break
    finally:
        ownership.on_reject = of_entries
    events = structlog.get_logger("eosframework.spark")
    error = str(rejected[0]) if rejected else "the transaction was aborted several times"
    events.warning("batch_left_to_executors", batch=str(complete.batch), error=error)
    return False
