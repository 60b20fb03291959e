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

RESULT_SCHEMA = "partition int, records bigint"

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


def failure_of(error: BaseException) -> EosError | None:
    """Return what an attempt failed with, out of what Spark raised; None: something else did."""
    found = _MARKED.search(str(error))
    if found is None:
        return None
    told = orjson.loads(base64.urlsafe_b64decode(found[1]))
    kind = getattr(errors, told["kind"], RunError)
    return _raised(kind if issubclass(kind, EosError) else RunError, told["message"])


def _raised(kind: type[EosError], message: str) -> EosError:
    try:
        return kind(message)
    except TypeError:
        return RunError(message)


def _attempt(work: Work, partition: int, runs: Iterator[Any]) -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    try:
        return run_attempt(work, partition, runs, context.attemptNumber() if context else 0).records
    except EosError as error:
        told = orjson.dumps({"kind": type(error).__name__, "message": str(error)})
        marked = _MARK + base64.urlsafe_b64encode(told).decode()
        raise RuntimeError(f"{error}\n{marked}") from None
