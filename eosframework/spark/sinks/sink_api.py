"""The public API of sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Protocol

import structlog
from pydantic import SecretStr

from eosframework.config import Settings, load_settings
from eosframework.errors import ConfigurationError
from eosframework.serialization.serdes import SerdeLike
from eosframework.spark.session.executors import reason_of
from eosframework.spark.session.spark_session import refuse_connect
from eosframework.spark.sinks.kafka.columns import STRUCT, KafkaColumns, RefusedColumns
from eosframework.spark.sinks.kafka.driver import KafkaSinkOptions
from eosframework.spark.sinks.kafka.row_encoders import open_serde
from eosframework.spark.sinks.sink_entry import BatchIdentity, check_sink_name, name_of
from eosframework.spark.sinks.sink_runner import (
    OwnedSink,
    SinkProgress,
    default_root,
    described,
    gauges_of,
    job_batch,
    run_batch,
    stages_of,
    streaming_batch,
    telling,
)
from eosframework.spark.sinks.table.driver import TableSinkOptions, refused_by
from eosframework.topology.graph.graph import OnError, Policy, TableMode
from eosframework.topology.spec.topology_spec import DeadLetter
from eosframework.txnid import refuse_bad_application

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_SHARDS = 1000
"""Each shard with rows is a producer with a transaction in each batch."""


class SinkOptions(Protocol):
    """The options of one sink."""

    @property
    def application(self) -> str:
        """Its owner."""
        ...

    @property
    def label(self) -> str:
        """Its name among all sinks of the application."""
        ...

    def of_job(self, job: str) -> SinkOptions:
        """Return the sink of a batch DataFrame."""
        ...

    def own(self, offered: BatchIdentity) -> OwnedSink:
        """Own the sink (S1), unless it refuses the batch."""
        ...

    def check_columns(self, frame: DataFrame) -> None:
        """Raise ConfigurationError for columns that are missing or have an unsuitable type."""
        ...


class Sink:
    """Writes the rows of each batch exactly once; see `kafka_sink`, `table_sink` and `both`."""

    def __init__(self, parts: Sequence[SinkOptions]) -> None:
        self.parts = tuple(parts)
        self._owned: list[OwnedSink] = []
        self._progress: tuple[SinkProgress, ...] = ()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Sink], tuple[Sequence[SinkOptions]]]:
        # Spark Connect pickles the function of a query. The call on its server names the reason why
        # a sink does not run there, which a refusal to be pickled would hide.
        return Sink, (self.parts,)

    @property
    def progress(self) -> tuple[SinkProgress, ...]:
        """The figures of the last batch of a streaming query, of each sink that completed it.

        A `StreamingQueryListener` reads them when Spark reports the progress of the query.
        """
        return self._progress

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch of a streaming query, for `writeStream.foreachBatch`.

        Raises:
            StartRefused: the batch is neither the last one nor the next one; nothing was written.
            RunError: a row is refused, or the cause of a failure has to be fixed.
            InstanceFenced: another driver runs the query.
        """
        refuse_connect(frame.sparkSession, "a sink")
        with self._lock:
            offered, checkpoint = streaming_batch(frame, batch)
            made = self._run(frame, offered, checkpoint)
            self._count(frame.sparkSession, made)
            self._progress = tuple(made)

    def write(self, frame: DataFrame, job: str, directory: str | None = None) -> bool:
        """Write a batch DataFrame once, however often it is called with the same job.

        Returns:
            True: this call wrote the rows, or the rest of them. False: the job was complete before,
            and nothing was written.

        Args:
            frame: the rows.
            job: name of the job: up to 60 lower-case letters, digits, `_` and `-`. A call resumes
                an incomplete job; a complete one is skipped.
            directory: for the stage, on a file system that every executor can read; None: Spark's
                checkpoint location, else its warehouse.

        Raises:
            ConfigurationError: the name is invalid.
            RunError: a row is refused, or the cause of a failure has to be fixed.
            InstanceFenced: another process writes the same job.
        """
        refuse_connect(frame.sparkSession, "a sink")
        sink = Sink(self.of_job(job).parts)
        try:
            root = directory or default_root(frame.sparkSession)
            return bool(sink._run(frame, job_batch(job), root))
        finally:
            sink.close()

    def of_job(self, job: str) -> Sink:
        """Return the sink of a batch DataFrame.

        Args:
            job: name of the job; see `write`.

        Raises:
            ConfigurationError: the name is invalid.
        """
        return Sink([part.of_job(check_sink_name(job, "job")) for part in self.parts])

    def check_columns(self, frame: DataFrame) -> None:
        """Raise for columns that are missing or have an unsuitable type, as far as is known here.

        Raises:
            ConfigurationError: names the column.
        """
        for part in self.parts:
            part.check_columns(frame)

    def close(self) -> None:
        """Release the sink; the next batch owns it again."""
        owned, self._owned = self._owned, []
        for sink in owned:
            sink.close()

    def _count(self, spark: SparkSession, made: Sequence[SinkProgress]) -> None:
        """Add a batch to the gauges; it is committed, so their failure is not the query's."""
        owners = {part.label: part.application for part in self.parts}
        for one in made:
            try:
                gauges_of(spark, owners[one.sink], one.sink).add(one)
            except Exception as error:
                events = structlog.get_logger("eosframework.spark")
                events.warning("gauges_failed", sink=one.sink, error=reason_of(error))

    def _run(self, frame: DataFrame, offered: BatchIdentity, root: str) -> list[SinkProgress]:
        from eosframework.spark.session.spark_session import check_packages, require_executors

        labels = [part.label for part in self.parts]
        names = ", ".join(labels)
        with telling(names, offered), described(frame.sparkSession, names, offered):
            try:
                if not self._owned:
                    check_packages("a sink")
                    require_executors(frame.sparkSession)
                    for part in self.parts:
                        self._owned.append(part.own(offered))
                parent = stages_of(root, self.parts[0].application, labels)
                return run_batch(self._owned, frame, offered, parent)
            except BaseException:
                self.close()
                raise


def kafka_sink(
    topic: str | None = None,
    *,
    application: str,
    name: str | None = None,
    key: str | None = None,
    value: str = STRUCT,
    headers: str | None = None,
    timestamp: str | None = None,
    partition: str | None = None,
    topic_column: str | None = None,
    serde: SerdeLike | None = None,
    key_serde: SerdeLike | None = None,
    shards: int = 8,
    stage: bool = True,
    on_error: Literal["fail", "skip"] | DeadLetter = "fail",
    follows: str | None = None,
    settings: Settings | None = None,
) -> Sink:
    """Return a sink that writes each row to Kafka exactly once.

    Pass it to `writeStream.foreachBatch`, or call its `write` with a batch DataFrame. Binary
    columns are written as they are, text as UTF-8, structs, arrays and maps as JSON, and other
    types as their text.

    Args:
        topic: of all records.
        application: owner of the control topic and the transactional ids; not one of live workers.
        name: of the sink within the application; None: made from the topic.
        key: column of keys; None: records have no key.
        value: column of values, or `struct`: all columns as one JSON object. Null is a tombstone.
        headers: column of headers, an array of structs of key (text) and value (binary).
        timestamp: column of timestamps, or of milliseconds since the epoch; None: the time at which
            a record is produced.
        partition: column of partition numbers; None: chosen by the key, as live producers do.
        topic_column: column of topics, in place of `topic`.
        serde: encodes the values, as for a topology's outputs, for example `avro("order.avsc")`;
            None: Spark does, as above.
        key_serde: likewise for keys.
        shards: number of parallel transactions of a batch. It may change between batches.
        stage: store each batch durably before it is written. False is safe only for plans that give
            the same rows each time; see the how-to.
        on_error: for rows whose values show that they cannot be written: `fail` ends the query
            before any row of the batch is written, `skip` counts and logs them,
            `dead_letter(topic)` writes them there, exactly once.
        follows: mark of the last batch, from the message that refused another query, after which
            this query begins.
        settings: of the application; None: from the environment.

    Raises:
        ConfigurationError: an argument is invalid.
        TopologyError: the application's name is invalid, or there is no such serde.
        SchemasUnusable: the schema registry cannot be reached, or lacks or rejects a schema.
    """
    if (topic is None) == (topic_column is None):
        raise ConfigurationError(
            f"kafka_sink got topic={topic!r} and topic_column={topic_column!r}; expected one of "
            f"them: the topic of all records, or the column that has each record's topic"
        )
    _refuse_shards("kafka_sink", shards)
    policy = _policy("kafka_sink", on_error)
    if policy.policy is not Policy.FAIL and not stage:
        raise ConfigurationError(
            f"kafka_sink got on_error={on_error!r} and stage=False; expected stage=True, so that "
            f"what is decided of a row is stored with the batch, and a restart follows it"
        )
    if policy.topic is not None and policy.topic == topic:
        raise ConfigurationError(
            f"kafka_sink got topic {topic!r} for the records and for dead letters; choose another "
            f"topic for dead letters"
        )
    refuse_bad_application(application)
    chosen = name or name_of(topic or topic_column or "")
    found = settings or load_settings()
    columns = KafkaColumns(topic, topic_column, key, value, headers, timestamp, partition)
    if key_serde is not None:
        opened = open_serde(key_serde, topic, found.schema_registry, is_key=True)
        columns = replace(columns, key_serde=opened)
    if serde is not None:
        opened = open_serde(serde, topic, found.schema_registry, is_key=False)
        columns = replace(columns, serde=opened)
    options = KafkaSinkOptions(
        application=application,
        sink=check_sink_name(chosen, "sink"),
        columns=columns,
        shards=shards,
        stage=stage,
        follows=follows,
        settings=found,
        on_error=policy,
    )
    return Sink([options])


def table_sink(
    table: str,
    *,
    application: str = "spark",
    name: str | None = None,
    dsn: str | None = None,
    mode: Literal["append", "upsert"] = "append",
    keys: Sequence[str] = (),
    shards: int = 8,
    on_error: Literal["fail", "skip"] | DeadLetter = "fail",
    follows: str | None = None,
    settings: Settings | None = None,
) -> Sink:
    """Return a sink that writes each row to a PostgreSQL table exactly once.

    The columns of the rows are those of the table. Rows and the position of their shard are written
    in one database transaction.

    Args:
        table: an existing table, with its schema before a dot if it has one.
        application: owner of the positions in the database.
        name: of the sink within the application; None: made from the table.
        dsn: connection string; None: that of the settings.
        mode: `append`, or `upsert`: a row replaces the row with equal keys.
        keys: columns of a unique constraint, for `upsert`.
        shards: number of parallel transactions of a batch. It may change between batches.
        on_error: as for `kafka_sink`. Dead letters are written by a Kafka sink called
            `NAME_dead_letters`, of the same application and settings.
        follows: as for `kafka_sink`.
        settings: of the application; None: from the environment.

    Raises:
        ConfigurationError: an argument is invalid, or there is no database.
        TopologyError: the application's name is invalid.
    """
    if (mode == "upsert") != bool(keys) or mode not in ("append", "upsert"):
        raise ConfigurationError(
            f"table_sink got mode={mode!r} and keys={list(keys)!r}; expected mode='upsert' with "
            f"the columns of a unique constraint as keys, or mode='append' without keys"
        )
    _refuse_shards("table_sink", shards)
    policy = _policy("table_sink", on_error)
    refuse_bad_application(application)
    chosen = settings or load_settings()
    if dsn is not None:
        database = chosen.database.model_copy(update={"dsn": SecretStr(dsn)})
        chosen = chosen.model_copy(update={"database": database})
    if chosen.database.dsn is None:
        raise ConfigurationError(
            "table_sink has no database; pass dsn='postgresql://…', or set database.dsn"
        )
    options = TableSinkOptions(
        application=application,
        sink=check_sink_name(name or name_of(table), "sink"),
        table=table,
        mode=TableMode(mode),
        keys=tuple(keys),
        shards=shards,
        follows=follows,
        settings=chosen,
        on_error=policy,
    )
    if policy.topic is None:
        return Sink([options])
    letters = KafkaSinkOptions(
        application=application,
        sink=check_sink_name(f"{options.sink}_dead_letters", "sink"),
        columns=RefusedColumns(policy.topic, partial(refused_by, options)),
        shards=shards,
        stage=True,
        follows=follows,
        settings=chosen,
        on_error=OnError(),
        refused_by=options.label,
    )
    return Sink([options, letters])


def both(*sinks: Sink) -> Sink:
    """Return one sink that feeds several from one stage: a batch is computed once for all of them.

    Args:
        sinks: two or more; each keeps its own progress, so they are not one transaction.

    Raises:
        ConfigurationError: two of them have the same name, or there are fewer than two.
    """
    parts = [part for sink in sinks for part in sink.parts]
    labels = Counter(part.label for part in parts)
    if len(sinks) < 2:
        raise ConfigurationError(
            f"both got {len(sinks)} sinks; expected two or more. Pass a single one to foreachBatch"
        )
    if twice := sorted(label for label, count in labels.items() if count > 1):
        raise ConfigurationError(
            f"both got two sinks called {twice[0]!r}, which would share their progress; give one "
            f"of them another name="
        )
    return Sink(parts)


def _policy(function: str, on_error: Any) -> OnError:
    if on_error in ("fail", "skip"):
        return OnError(Policy(on_error))
    if isinstance(on_error, DeadLetter) and not on_error.retry and not on_error.replay:
        return OnError(Policy.DEAD_LETTER, on_error.dead_letter)
    raise ConfigurationError(
        f"{function} got on_error={on_error!r}; expected 'fail', 'skip' or dead_letter(TOPIC), "
        f"without retry= and replay=, which are for topologies"
    )


def _refuse_shards(function: str, shards: int) -> None:
    if not 1 <= shards <= MOST_SHARDS:
        raise ConfigurationError(
            f"{function} got shards={shards}; expected a number from 1 to {MOST_SHARDS}, for "
            f"example the number of the cluster's cores"
        )
