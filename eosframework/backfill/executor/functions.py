"""Functions that Spark calls on executors: one attempt of each task, over rows or over the log.

Less work between the tasks of a Python worker that Spark reuses.
Spark runs many tasks in one process. After each of them pyspark collects all garbage, and modules
alone have hundreds of thousands of objects. Before each of them it invalidates the finders of
modules, and each finder of a zip archive, such as pyspark.zip, then reads the archive's directory
again (CPython 3.11). Either takes longer than a small task.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar
from zipimport import zipimporter

from eosframework.backfill.executor.attempt import Rows, run_attempt
from eosframework.backfill.executor.attempt_context import Run, TaskSpec
from eosframework.backfill.spark.executors import BatchFunction, RecordBatch, batch_of, encoded
from eosframework.errors import EosError
from eosframework.process.logs import configure_logs
from eosframework.process.signals import restore_default_handlers
from eosframework.records import TopicPartition

_GARBAGE_THRESHOLD = 50_000
"""A batch makes thousands of tuples, all freed by reference counts; a collection for every 700th
takes 3 to 7% of the time."""


@contextmanager
def cheap_reuse() -> Generator[None]:
    """Collect garbage rarely within; afterwards leave little to collect and to invalidate."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_GARBAGE_THRESHOLD, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        _exclude_modules()
        forget_archives()


def _exclude_modules() -> None:
    """Freeze the objects that exist after the first task, most of which are those of modules.

    Only once: objects of a user's function that are frozen are not collected any more.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def forget_archives() -> None:
    """Forget the finders of zip archives; an import makes them again from cached directories."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


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
