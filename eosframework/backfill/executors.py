"""What Spark calls on its executors: an attempt for each task whose rows a Spark partition holds.

A failure of the user's or of a server's travels to the driver as one line, not as a traceback in a
traceback of Spark's.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from eosframework import errors
from eosframework.backfill.attempt import Work, run_attempt
from eosframework.errors import EosError, RunError

if TYPE_CHECKING:
    import pyarrow as pa

RESULT_SCHEMA = "partition bigint, records bigint"

_MARK = "eosframework-failure:"
_MARKED = re.compile(_MARK + r"([A-Za-z0-9_\-=]+)")


def attempts(work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what `mapInArrow` runs: rows in the order of their tasks become transactions."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from eosframework.backfill.rows import runs

        for partition, task_runs in runs(batches, own_topics=work.own_topics):
            records = _attempt(work, partition, task_runs)
            yield pa.RecordBatch.from_pydict({"partition": [partition], "records": [records]})

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
    return telling(lambda number: run_attempt(work, partition, runs, number).records)
