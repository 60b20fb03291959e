"""Rows that a sink cannot write, found before the first row of their batch is written.

Of each such row the sink's column has the reason (`REASON`), computed together with the row. So a
stage has the decision, and every attempt, driver and restart follows the same one.

    fail          the reason ends the batch where it is computed: nothing of it is written
    skip          the row is left out, counted and logged
    dead_letter   a dead letter is written: of a Kafka sink in the row's place in its shard, of a
                  table sink by a Kafka sink of its own, which reads the same stage
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from eosframework.errors import EosError, RunError
from eosframework.spark.session import values
from eosframework.spark.session.executors import Table, failure_of
from eosframework.topology.graph.graph import OnError, Policy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON, ROW = "eosframework_reason", "eosframework_row"
"""Columns of a stage: why a row is refused, and the row as JSON; null for a row to write."""

LOGGED_ROWS = 20
"""Most refused rows of a batch that are in the log; all of them are counted."""

_MARK = "eosframework-refusal:"
_NEXT, _THEN, _END = ";;eosframework-advice:", ";;eosframework-row:", ";;eosframework-end"
_MARKED = re.compile(f"{_MARK} (.*?){_NEXT} (.*?){_THEN} (.*?){_END}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse rows.

    Args:
        condition: true for such a row; null counts as false.
        reason: continues "a row …".
        advice: the next step.
    """

    condition: Column
    reason: Column | str
    advice: str = values.ADVICE


def refusal_columns(
    sink: str, frame: DataFrame, refusals: Sequence[Refusal], policy: Policy
) -> dict[str, Column]:
    """Return the columns `REASON` and `ROW`; with the policy to fail the first one raises.

    Args:
        sink: its name, for the message.
        frame: the user's rows.
        refusals: the first one that holds is the reason.
        policy: for refused rows.
    """
    from pyspark.sql import functions as f

    nothing = f.lit(None).cast("string")
    if not refusals:
        return {REASON: nothing, ROW: nothing}
    fails = policy is Policy.FAIL

    def said(one: Refusal) -> Column:
        reason = f.lit(one.reason) if isinstance(one.reason, str) else one.reason
        return f.concat(reason, f.lit(f"{_NEXT} {one.advice}")) if fails else reason

    # One expression for all, because the description of a row is a large one.
    [first, *others] = refusals
    found = f.when(first.condition, said(first))
    for one in others:
        found = found.when(one.condition, said(one))
    if not fails:
        most = None if policy is Policy.DEAD_LETTER else values.DESCRIBED
        return {REASON: found, ROW: f.when(found.isNotNull(), values.described(frame, most))}
    row = values.described(frame, values.DESCRIBED)
    begin = f.lit(f"{_MARK} sink {sink!r}: a row ")
    text = f.concat(begin, found, f.lit(f"{_THEN} "), row, f.lit(_END))
    return {REASON: f.when(found.isNotNull(), f.raise_error(text).cast("string")), ROW: nothing}


def told(error: BaseException, batch: object) -> EosError | None:
    """Return the framework's own error in an exception of Spark; None: it contains none.

    Args:
        error: of Spark.
        batch: that failed, for the message.
    """
    refused = _MARKED.search(str(error))
    if refused is None:
        return failure_of(error, f"{batch}: ")
    reason, advice, row = refused.groups()
    return RunError(
        f"{batch}: {reason} (the row is {row}). Nothing of the batch was written; {advice}, or "
        f"continue without such rows: on_error='skip', or dead_letter(TOPIC). Then start the query "
        f"again"
    )


def written_rows(rows: DataFrame) -> DataFrame:
    """Return the rows that are not refused."""
    return rows.filter(f"{REASON} IS NULL").drop(REASON, ROW)


Refused = tuple[int, list[Any]]
"""The number of refused rows, and the first of them."""


def refused_of_frame(rows: DataFrame) -> Refused:
    """Return the refused rows of a batch."""
    refused = rows.filter(f"{REASON} IS NOT NULL").select(REASON, ROW)
    count = refused.count()
    return count, refused.limit(LOGGED_ROWS).collect() if count else []


def refused_of_table(rows: Table) -> Refused:
    """Return the refused rows of a batch in Arrow."""
    refused = rows.filter(rows.column(REASON).is_valid()).select([REASON, ROW])
    return refused.num_rows, refused.slice(0, LOGGED_ROWS).to_pylist()


def report_refused(label: str, on_error: OnError, batch: object, refused: Refused) -> None:
    """Log the refused rows of a batch.

    Args:
        label: of the sink.
        on_error: policy of the sink.
        batch: for the log.
        refused: its refused rows.
    """
    count, rows = refused
    if not count:
        return
    events = structlog.get_logger("eosframework.spark").bind(sink=label, batch=str(batch))
    for one in rows:
        events.warning("row_refused", reason=one[REASON], row=one[ROW][: values.DESCRIBED])
    events.warning(
        "rows_refused", count=count, on_error=on_error.policy.value, topic=on_error.topic
    )
