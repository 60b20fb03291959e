"""The driver's part of a sink: one batch from its offer to its completion.

    S1. own the sink: init its id, or claim its row; an earlier driver can record nothing more
    S2. accept the batch, or skip it, or refuse it (`batch_rules`)
    S3. stage its rows, then record in each sink that the batch is open, with the stage
    S4. write each sink by a Spark job: an attempt for each shard with rows
    S5. record in the sink that the batch is complete; remove the stage after the last one

A small batch of a single sink takes one step instead of S3 to S5, and needs no stage (`few_rows`):

    S6. collect its rows; write them and the record that it is complete in one transaction of the
        driver. If they do not fit one, continue with S3

A crash before the record of S3 leaves a stage that no entry names: it is removed, and the batch is
computed again, of which no row is written yet. A crash after it leaves an open batch: Spark offers
the batch again, and the attempts resume from its stage. A crash after S5 leaves a complete batch
that Spark offers again: it is skipped.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

import structlog

from eosframework.backfill.spark.arrow_batches import Table
from eosframework.backfill.spark.executor_failures import reason_of
from eosframework.backfill.spark.jvm import jvm_of
from eosframework.errors import ConfigurationError, EosError, RunError
from eosframework.spark.batch_rules import Decision
from eosframework.spark.few_rows import few_rows, sink_rows
from eosframework.spark.row_refusals import told
from eosframework.spark.sink_entry import BatchIdentity, SinkBatch
from eosframework.spark.sink_metrics import SinkProgress
from eosframework.spark.stage import (
    StagedRows,
    remove_leftovers,
    remove_stage,
    write_stage,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STAGES = "eosframework-stages"
"""Directory in a checkpoint; Spark ignores it there."""


class OwnedSink(Protocol):
    """A sink that this driver owns (S1).

    Its methods raise InstanceFenced once another driver owns it.
    """

    label: str
    """Its name among all sinks of the application, and of its column in a stage."""

    @property
    def staged(self) -> bool:
        """True unless its user calls all plans repeatable."""
        ...

    @property
    def last(self) -> SinkBatch | None:
        """The last batch that it accepted."""
        ...

    def decide(self, offered: BatchIdentity) -> Decision:
        """Return the handling of a batch (S2); raises StartRefused."""
        ...

    def column(self, frame: DataFrame) -> Column:
        """Return what the sink writes of each row, as a struct."""
        ...

    @property
    def expects_few(self) -> bool:
        """The next batch is expected to fit one transaction."""
        ...

    def write_at_once(self, offered: BatchIdentity, rows: Table) -> int | None:
        """Write a new batch and its completion in one transaction (S6).

        Returns:
            The number of rows; None: they do not fit one transaction, and nothing was written.
        """
        ...

    def accept(self, offered: BatchIdentity, stage: str | None) -> SinkBatch:
        """Record that a batch is open (S3)."""
        ...

    def write(self, rows: DataFrame, batch: SinkBatch) -> int:
        """Write all rows that are not committed, and return their number (S4)."""
        ...

    def complete(self, batch: SinkBatch, rows: int) -> None:
        """Record that a batch is complete (S5)."""
        ...

    def close(self) -> None:
        """Release the sink."""
        ...


def run_batch(
    sinks: Sequence[OwnedSink], frame: DataFrame, offered: BatchIdentity, parent: str
) -> list[SinkProgress]:
    """Write a batch to sinks, once, and return what each one has completed now.

    Args:
        sinks: owned by this driver.
        frame: the rows of the batch.
        offered: the batch.
        parent: directory for stages.

    Raises:
        StartRefused: a sink refuses the batch; nothing was written.
        RunError: a row is refused, or no attempt can succeed; names it.
        InstanceFenced: another driver owns a sink.
    """
    events = structlog.get_logger("eosframework.spark").bind(batch=str(offered))
    decisions = {sink.label: sink.decide(offered) for sink in sinks}
    left = [sink for sink in sinks if decisions[sink.label] is not Decision.SKIP]
    if not left:
        events.info("batch_skipped")
        return []
    opened = [sink.last for sink in left if decisions[sink.label] is Decision.RESUME]
    stage = next((one.stage for one in opened if one is not None and one.stage), None)
    if stage is None:
        remove_leftovers(frame.sparkSession, parent)
    else:
        for sink in left:
            StagedRows(frame.sparkSession, stage, sink.label).check()
    made = [] if opened else _at_once(sinks, frame, offered)
    if not made:
        new = [sink for sink in left if decisions[sink.label] is Decision.NEW]
        made = _in_steps(left, new, frame, offered, stage, parent)
    for one in made:
        events.info("batch_complete", sink=one.sink, rows=one.rows)
    return made


def _at_once(
    sinks: Sequence[OwnedSink], frame: DataFrame, offered: BatchIdentity
) -> list[SinkProgress]:
    """Write a small new batch of a single sink (S6); empty: nothing was written."""
    sink = sinks[0]
    if len(sinks) > 1 or not sink.expects_few:
        return []
    began = time.monotonic()
    rows = few_rows(frame, sink.column(frame))
    if rows is None:
        return []
    computed = time.monotonic()
    count = sink.write_at_once(offered, rows)
    if count is None:
        return []
    seconds = computed - began, time.monotonic() - computed, time.time()
    return [SinkProgress(sink.label, offered.query, offered.number, count, *seconds)]


def _in_steps(
    sinks: Sequence[OwnedSink],
    new: Sequence[OwnedSink],
    frame: DataFrame,
    offered: BatchIdentity,
    stage: str | None,
    parent: str,
) -> list[SinkProgress]:
    """Write a batch to sinks from a stage (S3 to S5).

    Args:
        sinks: all that the batch is left for.
        new: those of them that have not accepted it yet.
        frame: the rows of the batch.
        offered: the batch.
        stage: of an earlier run; None: there is none.
        parent: directory for stages.
    """
    spark, schema, stage_seconds = frame.sparkSession, None, 0.0
    if stage is None and any(sink.staged for sink in new):
        columns = {sink.label: sink.column(frame) for sink in sinks}
        began = time.monotonic()
        stage, schema = write_stage(frame, columns, parent)
        stage_seconds = time.monotonic() - began
        events = structlog.get_logger("eosframework.spark")
        events.info("batch_staged", batch=str(offered), stage=stage)
    for sink in new:
        sink.accept(offered, stage)
    made: list[SinkProgress] = []
    for sink in sinks:
        began = time.monotonic()
        batch = sink.last
        assert batch is not None
        if batch.stage is None:
            rows = sink_rows(frame, sink.column(frame))
        else:
            rows = StagedRows(spark, batch.stage, sink.label, schema).frame()
        count = sink.write(rows, batch)
        sink.complete(batch, count)
        seconds = stage_seconds, time.monotonic() - began, time.time()
        made.append(SinkProgress(sink.label, offered.query, offered.number, count, *seconds))
        stage_seconds = 0.0
    if stage is not None:
        remove_stage(spark, stage)
    return made


@contextmanager
def telling(names: str, batch: BatchIdentity) -> Generator[None]:
    """Raise the framework's own error for a failure of Spark, and log it.

    Args:
        names: of the sinks, for messages.
        batch: that they get, for messages.
    """
    events = structlog.get_logger("eosframework.spark")
    try:
        yield
    except EosError as error:
        events.error("sink_failed", sink=names, error=str(error))
        raise error.with_traceback(None) from None
    except Exception as error:
        found = told(error, batch)
        if found is None:
            found = RunError(
                f"sink {names}: Spark gave {batch} up: {reason_of(error)}. What is committed "
                f"stays; start the query again to resume"
            )
        events.error("sink_failed", sink=names, error=str(found))
        raise found from None


def streaming_batch(frame: DataFrame, number: int) -> tuple[BatchIdentity, str]:
    """Return the batch of a streaming query, and its checkpoint.

    Args:
        frame: as `foreachBatch` gives it.
        number: likewise.

    Raises:
        ConfigurationError: no streaming query runs here.
    """
    spark = frame.sparkSession
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    running = None if query is None else _execution(spark, query)
    if query is None or running is None:
        raise ConfigurationError(
            "the sink was called outside a streaming query; pass it to writeStream.foreachBatch, "
            "or write a batch DataFrame with .write(df, job=…)"
        )
    offsets = running.offsetLog().get(number)
    text = str(offsets.get().toString()) if offsets.isDefined() else ""
    identity = BatchIdentity(query=query, number=number, range=_digest(text))
    return identity, str(running.resolvedCheckpointRoot())


def _execution(spark: SparkSession, query: str) -> Any:
    """Return Spark's execution of an active query."""
    session: Any = cast(Any, spark)._jsparkSession  # noqa: SLF001
    uuid = jvm_of(spark).java.util.UUID.fromString(query)
    return session.sharedState().activeStreamingQueries().get(uuid)


def job_batch(job: str) -> BatchIdentity:
    """Return the only batch of a job."""
    return BatchIdentity(query=f"job {job}", number=0, range="")


def stages_of(root: str, application: str, labels: Sequence[str]) -> str:
    """Return the directory for stages of some sinks.

    Args:
        root: a checkpoint, or a directory for batch jobs.
        application: of the sinks.
        labels: of the sinks.
    """
    return f"{root.rstrip('/')}/{STAGES}/{application}.{'+'.join(sorted(labels))}"


def default_root(spark: SparkSession) -> str:
    """Return the directory for stages of batch jobs: Spark's checkpoints, else its warehouse."""
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    return checkpoints or str(spark.conf.get("spark.sql.warehouse.dir"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
