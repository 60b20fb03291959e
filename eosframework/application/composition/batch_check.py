"""The check of the next batches, at the start of a worker whose predecessors ended suddenly.

librdkafka unpacks a fetched batch whole, and aborts the process if it gets no memory for it; or the
kernel kills the process. Neither can name the batch, and the next process fetches it again. So a
worker that starts after several sudden ends in a row (`process/signals`) looks at the batches
at its next offsets as they are stored, before it fetches them.
"""

from __future__ import annotations

import logging

import structlog

from eosframework.application.composition.shown_positions import (
    positions_of_tables,
    positions_of_transforms,
)
from eosframework.application.context import ApplicationContext
from eosframework.errors import EosError, StartRefused
from eosframework.kafka.inspect.large_batches import LargeBatch, large_batches
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition

RECORD_COPIES = 2
"""Of a record, besides the unpacked batch: its value for Python, and what the value decodes to. So
a batch of one record takes three times its unpacked size (measured)."""

_events = structlog.get_logger("eosframework.worker")


def check_batches(
    context: ApplicationContext, instance: str, ends: int, free_bytes: int, *, tables: bool
) -> None:
    """Name the batches at the next offsets for which memory may not suffice.

    A check that cannot be made refuses nothing.

    Args:
        context: of the application.
        instance: name of the worker's instance.
        ends: how many processes of the instance ended suddenly, one after the other.
        free_bytes: memory that this process can get.
        tables: the worker writes to tables.

    Raises:
        StartRefused: a batch needs more than that memory.
    """
    # Below this level kafka-python logs each step of each connection.
    logging.getLogger("kafka").setLevel(logging.WARNING)
    try:
        found = next_batches(context, free_bytes // (1 + RECORD_COPIES), tables=tables)
    except EosError as error:
        _events.warning("batches_not_checked", sudden_ends=ends, error=str(error))
        return
    option = " --tables" if tables else ""
    for batch in found:
        if needed_bytes(batch) > free_bytes:
            raise StartRefused(
                f"the last {ends} processes of instance {instance!r} ended without a message, and "
                f"a batch at the next offsets does not fit into the {free_bytes:,} bytes of "
                f"memory that are left: {batch}. Give the worker more memory, or continue "
                f"after the batch: stop all workers and run: eosframework positions set APP"
                f"{option} '{batch.partition}={batch.next_offset}'"
            )
        _events.warning(
            "large_batch",
            sudden_ends=ends,
            batch=str(batch),
            free_bytes=free_bytes,
            hint="if this process ends suddenly again, give it more memory or continue after the "
            f"batch: eosframework positions set APP{option} "
            f"'{batch.partition}={batch.next_offset}'",
        )


def needed_bytes(batch: LargeBatch) -> int:
    """Return the memory that a worker needs for a batch whose records have the same size."""
    return batch.unpacked_bytes * (batch.records + RECORD_COPIES) // max(batch.records, 1)


def next_batches(
    context: ApplicationContext, above_bytes: int, *, tables: bool = False
) -> list[LargeBatch]:
    """Return the batches at an application's next offsets that unpack to more than a size.

    Raises:
        UserError: the cluster or the database cannot be asked.
        RunError: a batch is in a format older than transactions.
    """
    ranges = next_ranges(context, tables=tables)
    with Wire(context.settings.kafka) as wire:
        return list(large_batches(wire, ranges, above_bytes))


def next_ranges(
    context: ApplicationContext, *, tables: bool = False
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the unread offsets of each partition: the next one, and the end of its log."""
    rows = positions_of_tables(context) if tables else positions_of_transforms(context)
    return {
        TopicPartition(row.topic, row.partition): (max(row.committed or 0, row.first), row.end)
        for row in rows
    }
