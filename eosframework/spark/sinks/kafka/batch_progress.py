"""The progress of a batch in the driver's log, while executors write it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from threading import Event, Thread

import structlog

from eosframework.errors import EosError
from eosframework.spark.sinks.sink_entry import ShardProgress, SinkBatch

REPORT_SECONDS = 30.0
"""Between two reports; a shorter batch has none."""


@contextmanager
def reported(
    label: str, batch: SinkBatch, read: Callable[[], Mapping[int, ShardProgress]]
) -> Generator[None]:
    """Log how far a batch is, every `REPORT_SECONDS` of the block.

    Args:
        label: of the sink.
        batch: that is written.
        read: returns the progress of its shards that have committed rows.
    """
    done = Event()
    thread = Thread(target=_report, args=(label, batch, read, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _report(
    label: str, batch: SinkBatch, read: Callable[[], Mapping[int, ShardProgress]], done: Event
) -> None:
    events = structlog.get_logger("eosframework.spark").bind(sink=label, batch=str(batch.batch))
    while not done.wait(REPORT_SECONDS):
        try:
            shards = read().values()
        except EosError as error:
            events.warning("batch_progress_unknown", error=str(error))
            continue
        complete, rows = sum(one.complete for one in shards), sum(one.rows for one in shards)
        events.info(
            "batch_progress", shards_complete=complete, shards=batch.shards, rows_committed=rows
        )
