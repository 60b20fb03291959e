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
_NEXT, _END = ";;eosframework-advice:", ";;eosframework-end"
_MARKED = re.compile(f"{_MARK} (.*?){_NEXT} (.*?){_END}")


def refusing(
    sink: str,
    refusals: Sequence[tuple[Column, Column | str]],
    column: Column,
    row: Column,
    *,
    advice: str,
) -> Column:
    """Return a column that fails the batch for rows to refuse.

    Args:
        sink: its name, for the message.
        refusals: condition and reason of each.
        column: the value of all other rows.
        row: the row, for the message.
        advice: the next step, for the message.
    """
    from pyspark.sql import functions as f

    if not refusals:
        return column
    # One expression for all, because the description of a row is a large one.
    [(condition, reason), *others] = refusals
    found = f.when(condition, f.lit(reason))
    for condition, reason in others:
        found = found.when(condition, f.lit(reason))
    begin, end = f.lit(f"{_MARK} sink {sink!r}: a row "), f.lit(f"){_NEXT} {advice}{_END}")
    text = f.concat(begin, found, f.lit(" (the row is "), row, end)
    return f.when(found.isNotNull(), f.raise_error(text)).otherwise(column)


def told(error: BaseException, batch: object) -> EosError | None:
    """Return the framework's own error in an exception of Spark; None: it contains none.

    Args:
        error: of Spark.
        batch: that failed, for the message.
    """
    refused = _MARKED.search(str(error))
    if refused is None:
        return failure_of(error, f"{batch}: ")
    return RunError(
        f"{batch}: {refused[1]}. Nothing of the batch was written; {refused[2]}, and start the "
        f"query again"
    )
