"""Functions that Spark calls on executors: one attempt of each task, over rows or over the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from eosframework.backfill.executor.attempt import run_attempt
from eosframework.backfill.executor.attempt_context import TaskSpec
from eosframework.backfill.executor.chunk import Run
from eosframework.backfill.executor.task_reader import Rows
from eosframework.backfill.executor.worker_reuse import cheap_reuse
from eosframework.backfill.spark.arrow_batches import BatchFunction, RecordBatch, batch_of
from eosframework.backfill.spark.executor_failures import encoded
from eosframework.errors import EosError
from eosframework.process.logs import configure_logs
from eosframework.process.signals import restore_default_handlers
from eosframework.records import TopicPartition

_T = TypeVar("_T")

RESULT_SCHEMA = "partition bigint, records bigint"


def attempts(spec: TaskSpec) -> BatchFunction:
    """Return the function for `mapInArrow`: it processes the rows of each task in transactions."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        from eosframework.backfill.spark.spark_rows import runs

        for task, of_task in runs(batches, own_topics=spec.own_topics):
            records = _records(spec, task, partial(_ignoring_positions, of_task))
            yield batch_of([(task, records)], {"partition": "int64", "records": "int64"})

    return run


def attempts_over_log(spec: TaskSpec) -> Callable[[int], int]:
    """Return the function that runs a task over its ranges of the log and counts its records."""

    def run(task: int) -> int:
        return _records(spec, task, None)

    return run


def completions(spec: TaskSpec) -> Callable[[int], int]:
    """Return the function that completes a task without rows."""

    def run(task: int) -> int:
        return _records(spec, task, partial(_ignoring_positions, iter(())))

    return run


def run_numbered(attempt: Callable[[int], _T]) -> _T:
    """Run an attempt with Spark's attempt number; its error reaches the driver.

    Args:
        attempt: called with the number.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None:
        # A terminal's Ctrl-C does not reach executors: a user's function raised KeyboardInterrupt.
        restore_default_handlers()
    try:
        with cheap_reuse():
            return attempt(context.attemptNumber() if context else 0)
    except EosError as error:
        raise encoded(error) from None


def _records(spec: TaskSpec, task: int, rows: Rows | None) -> int:
    configure_logs(spec.settings.log)
    return run_numbered(lambda number: run_attempt(spec, task, number, rows).records)


def _ignoring_positions(rows: Iterator[Run], _: Mapping[TopicPartition, int]) -> Iterator[Run]:
    return rows
