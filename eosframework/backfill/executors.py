"""What Spark calls on its executors: an attempt for each task of which it holds rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from eosframework.backfill.spark.arrow import BatchFunction, RecordBatch, batch_of
from eosframework.backfill.tasks.attempt import run_attempt
from eosframework.backfill.tasks.failures import told
from eosframework.backfill.tasks.work import Work
from eosframework.errors import EosError
from eosframework.logs import configure_logs

RESULT_SCHEMA = "partition bigint, records bigint"


def attempts(work: Work) -> BatchFunction:
    """Return what `mapInArrow` runs: rows in the order of their tasks become transactions."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        from eosframework.backfill.spark.rows import runs

        for partition, of_task in runs(batches, own_topics=work.own_topics):
            records = _attempt(work, partition, of_task)
            yield batch_of([(partition, records)], {"partition": "int64", "records": "int64"})

    return run


def finishing(work: Work) -> Callable[[int], int]:
    """Return what completes a task that has no row in the whole range."""

    def run(partition: int) -> int:
        return _attempt(work, partition, iter(()))

    return run


def telling(attempt: Callable[[int], int]) -> int:
    """Run an attempt, with the number that Spark gives it; what it fails with reaches the driver.

    Args:
        attempt: takes the number.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    try:
        return attempt(context.attemptNumber() if context else 0)
    except EosError as error:
        raise told(error) from None


def _attempt(work: Work, partition: int, runs: Iterator[Any]) -> int:
    configure_logs(work.settings.log)
    return telling(lambda number: run_attempt(work, partition, runs, number).records)
