"""The driver's part of a sink: one batch from its offer to its completion.

    S1. own the sink: init its id, or claim its row; an earlier driver can record nothing more
    S2. accept the batch, or skip it, or refuse it (`spark/sinks/sink_entry`)
    S3. stage its rows, then record in each sink that the batch is open, with the stage
    S4. write each sink by a Spark job: an attempt for each shard with rows
    S5. record in the sink that the batch is complete; remove the stage after the last one

A small batch of a single sink takes one step instead of S3 to S5, and needs no stage:

    S6. collect its rows; write them and the record that it is complete in one transaction of the
        driver. If they do not fit one, continue with S3

A crash before the record of S3 leaves a stage that no entry names: it is removed, and the batch is
computed again, of which no row is written yet. A crash after it leaves an open batch: Spark offers
the batch again, and the attempts resume from its stage. A crash after S5 leaves a complete batch
that Spark offers again: it is skipped.

The stage of a batch: its rows, computed once and stored durably before any shard commits.
The rows are staged as the plan gives them, and sharded when they are read. Sharding them first
would make the stage itself unrepeatable: when an executor is lost while it is written, Spark
computes the lost rows again, and a row whose key is not the same would come to another shard, which
may be written already.

A stage is one directory of Parquet under a name of its own. It counts from the moment at which the
sink's entry names it, so nothing has to be renamed, which object stores cannot do atomically.

Figures of a sink's batches, as gauges of Spark's own metrics system on the driver.
Spark exposes them where it exposes its own: at the UI's port for Prometheus, through JMX, or to any
other sink that `spark.metrics.conf` names. They are accumulators of the driver, so no port of ours
is opened and no figure passes through executors.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import structlog

from eosframework.errors import ConfigurationError, EosError, RunError, StartRefused
from eosframework.spark.session.executors import Table, reason_of
from eosframework.spark.session.spark_session import file_system_of, hadoop_path, jvm_of
from eosframework.spark.sinks.refused_rows import (
    Refused,
    refused_of_frame,
    refused_of_table,
    report_refused,
    told,
)
from eosframework.spark.sinks.sink_entry import (
    BatchIdentity,
    Decision,
    SinkBatch,
    few_rows,
    policy_text,
    refuse_other_options,
    sink_rows,
)
from eosframework.topology.graph.graph import OnError, Policy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_COMPLETE = "_SUCCESS"
"""Written last by Spark."""

_OPTIONS = {
    "maxRecordsPerFile": "0",
    "parquet.enable.dictionary": "false",
    "parquet.column.statistics.enabled": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
}
"""A stage is read as a whole: the least and the greatest value of each page, and dictionaries, cost
time and save none."""


def _write_stage(
    frame: DataFrame, columns: Mapping[str, Column], parent: str
) -> tuple[str, StructType]:
    """Write rows, one column for each sink, and return their directory and schema.

    Args:
        frame: the user's rows.
        columns: by label of the sink.
        parent: directory on a file system that every executor can read.
    """
    directory = f"{parent.rstrip('/')}/{uuid.uuid4().hex}"
    rows = frame.select(*[column.alias(label) for label, column in columns.items()])
    rows.write.options(**_OPTIONS).parquet(directory)
    return directory, rows.schema


@dataclass(frozen=True, slots=True)
class _StagedRows:
    """The staged rows of one sink.

    Args:
        spark: a session.
        directory: of the stage.
        label: of the sink.
        schema: of the stage; None: it is read from the files.
    """

    spark: SparkSession
    directory: str
    label: str
    schema: StructType | None = None

    def check(self) -> None:
        """Refuse a stage that cannot be read, or that has no rows of this sink.

        Raises:
            StartRefused: the directory is missing or incomplete, or was written for other sinks.
        """
        place = hadoop_path(self.spark, f"{self.directory}/{_COMPLETE}")
        if not file_system_of(self.spark, place).exists(place):
            raise StartRefused(
                f"sink {self.label!r}: the stage {self.directory} of its incomplete batch is "
                f"missing; rows of the batch may be committed, and computed again they could be "
                f"others. Restore the directory, which is part of the checkpoint; or give the rest "
                f"of the batch up: begin with a new checkpoint and another sink name"
            )
        found = self._reader().parquet(self.directory).columns
        if self.label not in found:
            raise StartRefused(
                f"sink {self.label!r}: the stage {self.directory} was written for "
                f"{', '.join(found)}. Start the query once with the sinks that it had, then change "
                f"them"
            )

    def frame(self) -> DataFrame:
        """Return the rows of the sink; it may have none of the row of another one."""
        found = self._reader().parquet(self.directory).filter(f"`{self.label}` IS NOT NULL")
        return found.select(f"`{self.label}`.*")

    def _reader(self) -> Any:
        return self.spark.read if self.schema is None else self.spark.read.schema(self.schema)


def _remove_stage(spark: SparkSession, directory: str) -> None:
    """Remove a stage; one that is gone already is no error."""
    place = hadoop_path(spark, directory)
    file_system_of(spark, place).delete(place, True)


def _remove_leftovers(spark: SparkSession, parent: str) -> None:
    """Remove stages that no sink's entry names: their driver ended before it could."""
    place = hadoop_path(spark, parent)
    file_system_of(spark, place).delete(place, True)


_GAUGES = (
    "batches",
    "rows",
    "skipped",
    "dead_letters",
    "stage_milliseconds",
    "write_milliseconds",
    "complete_at_seconds",
)
"""All but the last one are sums since the start of the driver."""


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """The figures of one batch that a sink has completed.

    Args:
        sink: `kafka_` or `table_`, and the name of the sink.
        query: id of the streaming query.
        batch: number of the batch within the query.
        rows: number of rows, with those that an earlier driver wrote; of a topic with dead letters.
        stage_seconds: time to compute and store the batch; 0 if another sink or driver did.
        write_seconds: time to write it.
        complete_at: seconds since the epoch.
        skipped: rows that were refused and left out.
        dead_letters: rows that were refused and have a dead letter.
    """

    sink: str
    query: str
    batch: int
    rows: int
    stage_seconds: float
    write_seconds: float
    complete_at: float
    skipped: int = 0
    dead_letters: int = 0

    def with_refused(self, count: int, on_error: OnError) -> SinkProgress:
        """Return it with the number of refused rows."""
        is_skip = on_error.policy is Policy.SKIP
        return replace(self, **{"skipped" if is_skip else "dead_letters": count})


class SinkGauges:
    """The gauges of one sink.

    Args:
        spark: a session of the driver.
        application: owner of the sink.
        sink: `kafka_` or `table_`, and the name of the sink.
    """

    def __init__(self, spark: SparkSession, application: str, sink: str) -> None:
        jvm: Any = jvm_of(spark)
        context: Any = spark.sparkContext
        named, self._gauges = jvm.java.util.HashMap(), dict[str, Any]()
        for gauge in _GAUGES:
            name = f"eosframework.{application}.{sink}.{gauge}"
            self._gauges[gauge] = jvm.org.apache.spark.util.LongAccumulator()
            context._jsc.sc().register(self._gauges[gauge], name)  # noqa: SLF001
            named.put(name, self._gauges[gauge])
        # Not through SparkEnv: py4j loads all classes of its methods, one of which Spark 4.3 lacks.
        source = getattr(jvm.org.apache.spark.metrics.source, "LongAccumulatorSource$")
        scala_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(named)
        getattr(source, "MODULE$").register(context._jsc.sc(), scala_map)  # noqa: SLF001

    def add(self, progress: SinkProgress) -> None:
        """Add a batch."""
        self._gauges["batches"].add(1)
        self._gauges["rows"].add(progress.rows)
        self._gauges["skipped"].add(progress.skipped)
        self._gauges["dead_letters"].add(progress.dead_letters)
        self._gauges["stage_milliseconds"].add(round(progress.stage_seconds * 1000))
        self._gauges["write_milliseconds"].add(round(progress.write_seconds * 1000))
        self._gauges["complete_at_seconds"].reset()
        self._gauges["complete_at_seconds"].add(round(progress.complete_at))


_REGISTERED: dict[tuple[str, str, str], SinkGauges] = {}


def gauges_of(spark: SparkSession, application: str, sink: str) -> SinkGauges:
    """Return the gauges of a sink in this driver.

    Spark keeps the first gauge of a name, so a query that is started again, with another sink
    object of the same name, must continue with the same ones.
    """
    key = str(spark.sparkContext.applicationId), application, sink
    if key not in _REGISTERED:
        _REGISTERED[key] = SinkGauges(spark, application, sink)
    return _REGISTERED[key]


_DESCRIPTION = "spark.job.description"

_STAGES = "eosframework-stages"
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
    def name(self) -> str:
        """Its name within the application."""
        ...

    @property
    def shards(self) -> int:
        """The number of shards of new batches."""
        ...

    @property
    def on_error(self) -> OnError:
        """Policy for rows that cannot be written."""
        ...

    @property
    def last(self) -> SinkBatch | None:
        """The last batch that it accepted."""
        ...

    def decide(self, offered: BatchIdentity) -> Decision:
        """Return the handling of a batch (S2); raises StartRefused."""
        ...

    def give_up(self) -> bool:
        """Give the open batch up, unless some of its rows are committed; return whether it is."""
        ...

    def column(self, frame: DataFrame) -> Column:
        """Return what the sink writes of each row, as a struct; null: nothing."""
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
    opened = _still_open(frame.sparkSession, sinks, decisions, offered)
    stage = next((one.stage for one in opened if one.stage), None)
    if stage is None:
        _remove_leftovers(frame.sparkSession, parent)
    else:
        for sink in left:
            _StagedRows(frame.sparkSession, stage, sink.label).check()
    # Also of a batch that is read from its stage: the next one would be refused.
    columns = {sink.label: sink.column(frame) for sink in left}
    made = [] if opened else _at_once(sinks, frame, columns, offered)
    if not made:
        new = [sink for sink in left if decisions[sink.label] is Decision.NEW]
        made = _in_steps(left, new, frame, columns, offered, stage, parent)
    for one in made:
        events.info("batch_complete", sink=one.sink, rows=one.rows)
    return made


def _still_open(
    spark: SparkSession,
    sinks: Sequence[OwnedSink],
    decisions: dict[str, Decision],
    offered: BatchIdentity,
) -> list[SinkBatch]:
    """Return the open batches that continue from their stage.

    An open batch of which nothing is committed becomes a new one, unless another sink has rows of
    its stage: all sinks get the same rows.

    Args:
        spark: a session.
        sinks: all of them.
        decisions: by label; those of batches that are given up change.
        offered: the batch.

    Raises:
        StartRefused: one that continues was opened with other options.
    """
    opened = [sink for sink in sinks if decisions[sink.label] is Decision.RESUME]
    left: list[SinkBatch] = []
    stages: set[str] = set()
    for sink in opened:
        last = sink.last
        assert last is not None, "a batch is open"
        if Decision.SKIP not in decisions.values() and sink.give_up():
            decisions[sink.label] = Decision.NEW
            stages |= {last.stage} if last.stage else set()
            continue
        refuse_other_options(sink.name, last, sink.shards, policy_text(sink.on_error))
        left.append(last)
    if opened and not left:
        for stage in stages:
            _remove_stage(spark, stage)
        events = structlog.get_logger("eosframework.spark")
        events.info("batch_given_up", batch=str(offered), reason="nothing of it is committed")
    return left


def _at_once(
    sinks: Sequence[OwnedSink],
    frame: DataFrame,
    columns: Mapping[str, Column],
    offered: BatchIdentity,
) -> list[SinkProgress]:
    """Write a small new batch of a single sink (S6); empty: nothing was written."""
    sink = sinks[0]
    if len(sinks) > 1 or not sink.expects_few:
        return []
    began = time.monotonic()
    rows = few_rows(frame, columns[sink.label])
    if rows is None:
        return []
    computed = time.monotonic()
    refused = _reported(sink, offered, partial(refused_of_table, rows))
    count = sink.write_at_once(offered, rows)
    if count is None:
        return []
    seconds = computed - began, time.monotonic() - computed, time.time()
    made = SinkProgress(sink.label, offered.query, offered.number, count, *seconds)
    return [made.with_refused(refused, sink.on_error)]


def _reported(sink: OwnedSink, offered: BatchIdentity, look: Callable[[], Refused]) -> int:
    """Log the refused rows of a batch before the others are written, and return their number."""
    if sink.on_error.policy is Policy.FAIL:
        return 0
    refused = look()
    report_refused(sink.label, sink.on_error, offered, refused)
    return refused[0]


def _in_steps(
    sinks: Sequence[OwnedSink],
    new: Sequence[OwnedSink],
    frame: DataFrame,
    columns: Mapping[str, Column],
    offered: BatchIdentity,
    stage: str | None,
    parent: str,
) -> list[SinkProgress]:
    """Write a batch to sinks from a stage (S3 to S5).

    Args:
        sinks: all that the batch is left for.
        new: those of them that have not accepted it yet.
        frame: the rows of the batch.
        columns: by label of the sink.
        offered: the batch.
        stage: of an earlier run; None: there is none.
        parent: directory for stages.
    """
    spark, schema, stage_seconds = frame.sparkSession, None, 0.0
    if stage is None and any(sink.staged for sink in new):
        began = time.monotonic()
        stage, schema = _write_stage(frame, columns, parent)
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
            rows = sink_rows(frame, columns[sink.label])
        else:
            rows = _StagedRows(spark, batch.stage, sink.label, schema).frame()
        refused = _reported(sink, offered, partial(refused_of_frame, rows))
        count = sink.write(rows, batch)
        sink.complete(batch, count)
        seconds = stage_seconds, time.monotonic() - began, time.time()
        progress = SinkProgress(sink.label, offered.query, offered.number, count, *seconds)
        made.append(progress.with_refused(refused, sink.on_error))
        stage_seconds = 0.0
    if stage is not None:
        _remove_stage(spark, stage)
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


@contextmanager
def described(spark: SparkSession, names: str, batch: BatchIdentity) -> Generator[None]:
    """Name a sink and its batch in Spark's UI, for the jobs of the block.

    Args:
        spark: a session.
        names: of the sinks.
        batch: that they get.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"{names}: {batch}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, cast(str, before))  # None removes it


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


def is_active(spark: SparkSession, query: str) -> bool:
    """Return whether a streaming query of an id runs in this driver."""
    return _execution(spark, query) is not None


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
    return f"{root.rstrip('/')}/{_STAGES}/{application}.{'+'.join(sorted(labels))}"


def default_root(spark: SparkSession) -> str:
    """Return the directory for stages of batch jobs: Spark's checkpoints, else its warehouse."""
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    return checkpoints or str(spark.conf.get("spark.sql.warehouse.dir"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
