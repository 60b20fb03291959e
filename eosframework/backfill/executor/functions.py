"""What Spark calls on its executors: an attempt of each task, over rows or over the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from eosframework.backfill.executor.attempt import run_attempt
from eosframework.backfill.executor.chunk import Run
from eosframework.backfill.executor.task_reader import Rows
from eosframework.backfill.executor.task_spec import Work
from eosframework.backfill.spark.arrow_batches import BatchFunction, RecordBatch, batch_of
from eosframework.backfill.spark.executor_failures import told
from eosframework.errors import EosError
from eosframework.process.logs import configure_logs
from eosframework.process.signals import restore_default_handlers
from eosframework.records import TopicPartition

RESULT_SCHEMA = "partition bigint, records bigint"


def attempts(work: Work) -> BatchFunction:
    """Return what `mapInArrow` runs: rows in the order of their tasks become transactions."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        from eosframework.backfill.spark.spark_rows import runs

        for task, of_task in runs(batches, own_topics=work.own_topics):
            records = _records(work, task, partial(_given, of_task))
            yield batch_of([(task, records)], {"partition": "int64", "records": "int64"})

    return run


def attempts_over_log(work: Work) -> Callable[[int], int]:
    """Return what runs a task that reads its ranges of the log itself, and counts its records."""

    def run(task: int) -> int:
        return _records(work, task, None)

    return run


def finishing(work: Work) -> Callable[[int], int]:
    """Return what completes a task that has no row in the whole range."""

    def run(task: int) -> int:
        return _records(work, task, partial(_given, iter(())))

    return run


def telling(attempt: Callable[[int], int]) -> int:
    """Run an attempt, with the number that Spark gives it; what it fails with reaches the driver.

    Args:
        attempt: takes the number.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None:
        # A terminal's Ctrl-C does not reach an executor, so that a KeyboardInterrupt is a record's.
        restore_default_handlers()
    try:
        return attempt(context.attemptNumber() if context else 0)
    except EosError as error:
        raise told(error) from None


def _records(work: Work, task: int, rows: Rows | None) -> int:
    configure_logs(work.settings.log)
    return telling(lambda number: run_attempt(work, task, number, rows).records)


def _given(rows: Iterator[Run], _: Mapping[TopicPartition, int]) -> Iterator[Run]:
    return rows
