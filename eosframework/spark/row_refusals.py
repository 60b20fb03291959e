"""Rows that a sink refuses while Spark computes them, and the message that reaches the driver."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eosframework.backfill.spark.executor_failures import failure_of
from eosframework.errors import EosError, RunError

if TYPE_CHECKING:
    from pyspark.sql import Column

_MARK = "eosframework-refusal:"
_MARKED = re.compile(_MARK + r" (.*?) ;;")


def refusing(
    sink: str, refusals: Sequence[tuple[Column, Column]], column: Column, kind: str, *, advice: str
) -> Column:
    """Return a column that fails the batch for rows to refuse.

    Args:
        sink: its name, for the message.
        refusals: condition and reason of each.
        column: the value of all other rows.
        kind: its type.
        advice: the next step, for the message.
    """
    from pyspark.sql import functions as f

    found = column.cast(kind)
    for condition, reason in refusals:
        text = f.concat(
            f.lit(f"{_MARK} sink {sink!r}: a row "),
            reason,
            f.lit(f". Nothing of its batch was written; {advice}, and start the query again ;;"),
        )
        found = f.when(condition, f.raise_error(text).cast(kind)).otherwise(found)
    return found


def told(error: BaseException) -> EosError | None:
    """Return the framework's own error in an exception of Spark; None: it contains none."""
    refused = _MARKED.search(str(error))
    return RunError(refused[1]) if refused else failure_of(error)
