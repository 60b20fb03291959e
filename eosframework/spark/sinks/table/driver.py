"""A table sink that this driver owns: its batches in the database, its Spark jobs."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import orjson

from eosframework.config import Settings
from eosframework.errors import (
    DatabaseRefused,
    InstanceFenced,
    RecordFailed,
    RunError,
    StartRefused,
)
from eosframework.process.logs import configure_logs
from eosframework.records import TopicPartition
from eosframework.serialization.serdes import BYTES
from eosframework.spark.executor.functions import run_numbered
from eosframework.spark.executor.table_attempt import Pace, TableAttempt
from eosframework.spark.session.executors import (
    BatchFunction,
    RecordBatch,
    Table,
    batch_of,
    map_batches,
)
from eosframework.spark.session.ordering import task_slots
from eosframework.spark.session.values import DESCRIBED
from eosframework.spark.sinks.refused_rows import written_rows
from eosframework.spark.sinks.sink_entry import (
    REFUSED_LATE,
    BatchIdentity,
    Decision,
    SinkBatch,
    decide,
    policy_text,
)
from eosframework.spark.sinks.table.columns import (
    RESULT_SCHEMA,
    ROW_BITS,
    SparkRow,
    SparkRowMaker,
    position_of,
    refused_by_table,
    rows_in_shards,
    rows_of,
    table_row,
)
from eosframework.topology.graph.graph import OnError, Policy, SinkTable, TableMode, TableSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from eosframework.postgres.database import Database
    from eosframework.postgres.database.tables.table_shapes import TableShape

_ORIGIN = "spark"
"""In place of a topic's id: positions of a sink belong to no topic."""


@dataclass(frozen=True, slots=True)
class TableSinkOptions:
    """The options of a table sink; see `table_sink`.

    Args:
        sink: name in the database: the sink's, and its job's for a batch DataFrame.
    """

    application: str
    sink: str
    table: str
    mode: TableMode
    keys: tuple[str, ...]
    shards: int
    follows: str | None
    settings: Settings
    on_error: OnError

    @property
    def label(self) -> str:
        """Name among all sinks of the application, and of the column in a stage."""
        return f"table_{self.sink}"

    def of_job(self, job: str) -> TableSinkOptions:
        """Return the sink of a batch DataFrame."""
        return replace(self, sink=f"{self.sink}.{job}")

    def own(self, offered: BatchIdentity) -> TableSinkDriver:
        """Own the sink (S1), unless it refuses the batch."""
        return TableSinkDriver(self, offered)

    def check_columns(self, frame: DataFrame) -> None:
        """Do nothing: the table decides, and it is read when the sink is owned."""

    @property
    def declared(self) -> TableSink:
        """The sink as a topology would declare it."""
        table = SinkTable(
            f"sink/{self.sink}", self.table, self.mode, self.keys, None, None, Policy.FAIL
        )
        topic = f"sink/{self.sink}"
        return TableSink(self.sink, topic, BYTES, BYTES, (table,), Policy.FAIL)


class TableSinkDriver:
    """An `OwnedSink` in PostgreSQL.

    Args:
        options: of the sink.
        offered: its first batch; a driver whose batch is refused must not fence the one that runs.

    Attributes:
        label: its name among all sinks of the application.

    Raises:
        StartRefused: the table or the sink cannot be used; names the way on.
        DatabaseUnusable: the database is unavailable.
    """

    def __init__(self, options: TableSinkOptions, offered: BatchIdentity) -> None:
        self.label = options.label
        from eosframework.postgres.database import Database
        from eosframework.postgres.database.grants import SPARK_SINK_GRANTS, require_grants
        from eosframework.postgres.database.migration import migrate
        from eosframework.postgres.database.tables.table_sink import OwnedSinkRow

        self._options = options
        name = f"eosframework {options.application} {options.sink}"
        self._database = Database(options.settings.database, application_name=name[:60])
        migrate(self._database)
        require_grants(self._database, SPARK_SINK_GRANTS)
        self._refuse_table()
        self._row = OwnedSinkRow(
            self._database,
            options.application,
            options.sink,
            lambda last: self._decision(last, offered),
        )
        self._slots: list[int] | None = None
        self._gave_up = False
        self._attempt = f"{socket.gethostname()}/{os.getpid()}"

    @property
    def name(self) -> str:
        """Its name within the application."""
        return self._options.sink

    @property
    def staged(self) -> bool:
        """True: rows have no digests in the database, so a plan is never trusted."""
        return True

    @property
    def shards(self) -> int:
        """The number of shards of new batches."""
        return self._options.shards

    @property
    def on_error(self) -> OnError:
        """Policy for rows that cannot be written."""
        return self._options.on_error

    @property
    def expects_few(self) -> bool:
        """False: the driver has no connection that writes rows."""
        return False

    @property
    def last(self) -> SinkBatch | None:
        """The last batch that it accepted."""
        return _as_batch(self._row.batch)

    def decide(self, offered: BatchIdentity) -> Decision:
        """Return the handling of a batch (S2).

        Raises:
            StartRefused: the batch is neither the last one nor the next one.
        """
        return self._decision(self._row.batch, offered)

    def _decision(self, last: Any, offered: BatchIdentity) -> Decision:
        return decide(self.name, _as_batch(last), offered, self._options.follows)

    def give_up(self) -> bool:
        """Give the open batch up unless some of its rows are in the table.

        The positions are moved past its end in the transaction that has read them, so no attempt
        writes a row of it any more. The sequence after it is left out: a position at the end of the
        batch could also be that of a shard that is complete.

        Returns:
            True: it may be computed again.
        """
        from eosframework.postgres.database.tables.table_sink import move_untouched

        last = self.last
        assert last is not None, "a batch is open"
        place = f"sink/{self._options.sink}"
        shards = [TopicPartition(place, shard) for shard in range(last.shards)]
        begin, after = position_of(last.sequence), position_of(last.sequence + 2)
        of_sink = self._database, self._options.application, _ORIGIN
        self._gave_up = move_untouched(*of_sink, shards, begin, after)
        return self._gave_up

    def column(self, frame: DataFrame) -> Column:
        """Return the columns of each row, as a struct.

        Raises:
            ConfigurationError: a key column is missing, or the table does not take a column.
            StartRefused: there is no table any more.
        """
        options, shape = self._options, shape_of(self._options, self._database)
        return table_row(self.name, frame, options.keys, shape, options.on_error.policy)

    def write_at_once(self, offered: BatchIdentity, rows: Table) -> int | None:
        """Write nothing; see `expects_few`."""
        return None

    def accept(self, offered: BatchIdentity, stage: str | None) -> SinkBatch:
        """Record that a batch is open (S3)."""
        last = self.last
        sequence = 1 if last is None else last.sequence + (2 if self._gave_up else 1)
        self._gave_up = False
        if last is not None and (
            last.shards != self._options.shards or last.batch.query != offered.query
        ):
            self._revoke(last.shards, sequence)
        batch = SinkBatch(
            sequence=sequence,
            batch=offered,
            shards=self._options.shards,
            stage=stage,
            on_error=policy_text(self._options.on_error),
            attempt=self._attempt,
            written_at=_now_ms(),
        )
        self._row.record(batch.to_entry())
        return batch

    def write(self, rows: DataFrame, batch: SinkBatch) -> int:
        """Write all rows that are not in the table, and return their number (S4)."""
        options, rows = self._options, written_rows(rows)
        if self._slots is None:
            self._slots = task_slots(rows.sparkSession, options.shards)
        sharded = rows_in_shards(rows, options.keys, options.shards, self._slots)
        written = map_batches(sharded, attempts(options, batch), RESULT_SCHEMA)
        results: list[Any] = written.collect()
        return sum(int(row[1]) for row in results)

    def complete(self, batch: SinkBatch, rows: int) -> None:
        """Record that a batch is complete (S5)."""
        changes = {"complete": True, "rows": rows, "written_at": _now_ms()}
        self._row.record(batch.model_copy(update=changes).to_entry())

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    def _revoke(self, shards: int, sequence: int) -> None:
        """Move the positions of shards, so that no attempt of an earlier batch can write."""
        from eosframework.postgres.database.tables.table_sink import StoredPosition, store_positions

        place = f"sink/{self._options.sink}"
        positions = [
            StoredPosition(TopicPartition(place, shard), _ORIGIN, position_of(sequence))
            for shard in range(shards)
        ]
        store_positions(self._database, self._options.application, positions)

    def _refuse_table(self) -> None:
        """Raise unless the table exists and its keys are unique.

        Raises:
            StartRefused: names the statement that helps.
        """
        from eosframework.postgres.database.tables.table_schema import plan_tables

        options = self._options
        [planned] = plan_tables(self._database, [options.declared]).tables
        if not planned.exists:
            raise _missing(options, self._database)
        if planned.problems:
            raise StartRefused(f"sink {self.name!r} cannot write: {planned.problems[0]}")


def shape_of(options: TableSinkOptions, database: Database) -> TableShape:
    """Return the table as it is now: it may change between batches.

    Raises:
        StartRefused: it does not exist.
    """
    from eosframework.postgres.database.tables.table_shapes import read_shape

    with database.session("read the table of a sink") as connection:
        shape = read_shape(connection, options.table)
    if shape is None:
        raise _missing(options, database)
    return shape


def _missing(options: TableSinkOptions, database: Database) -> StartRefused:
    return StartRefused(
        f"sink {options.sink!r} cannot write: {database.display} has no table {options.table}. "
        f"Nothing was written; create it with the columns of the rows"
    )


def refused_by(options: TableSinkOptions, frame: DataFrame) -> dict[str, Column]:
    """Return the refusal of each row, for the sink of its dead letters."""
    from eosframework.postgres.database import Database

    shape = shape_of(options, Database(options.settings.database))
    return refused_by_table(options.sink, frame, options.keys, shape, options.on_error.policy)


def attempts(options: TableSinkOptions, batch: SinkBatch) -> BatchFunction:
    """Return the function for `mapInArrow`: it writes the rows of a shard with its position."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        count = 0

        def counted() -> Iterator[tuple[TopicPartition, list[SparkRow]]]:
            nonlocal count
            for place, rows in rows_of(batches, options.sink, batch.sequence):
                count += len(rows)
                yield place, rows

        found = counted()
        first = next(found, None)
        if first is None:
            return
        configure_logs(options.settings.log)
        shard = first[0]
        run_numbered(lambda number: _attempt(options, batch, shard, number, chain([first], found)))
        deque(found, maxlen=0)  # counts what a complete shard did not read
        yield batch_of([(shard.partition, count)], {"shard": "int64", "row_count": "int64"})

    return run


def _attempt(
    options: TableSinkOptions,
    batch: SinkBatch,
    shard: TopicPartition,
    attempt_number: int,
    rows: Iterator[tuple[TopicPartition, list[SparkRow]]],
) -> int:
    from eosframework.postgres.database import Database
    from eosframework.postgres.database.tables.table_sink import PostgresRowStore, seen_position

    task = f"{options.application}/{shard}"
    session = f"eosframework sink {hashlib.sha256(task.encode()).hexdigest()[:16]}"
    database = Database(options.settings.database, application_name=session)
    store = PostgresRowStore(database, options.application, {shard.topic: _ORIGIN})
    attempt = TableAttempt(
        shard,
        position_of(batch.sequence),
        position_of(batch.sequence + 1),
        SparkRowMaker(options.declared),
        store,
        Pace.of(options.settings),
        partial(seen_position, database, options.application, shard),
        begin_at=lambda _, position, start: max(position, start),
    )
    try:
        return attempt.run(rows, attempt_number)
    except DatabaseRefused as error:
        raise RunError(f"sink {options.sink!r}: {_with_row(str(error), attempt, shard)}") from error
    except RecordFailed as error:
        reason = str(error).partition(". Nothing after it")[0]
        raise RunError(
            f"sink {options.sink!r}: {_with_row(reason, attempt, shard)}. {REFUSED_LATE}. Change "
            f"the table so that it accepts the row, and start the query again"
        ) from error
    except (InstanceFenced, RunError) as error:
        text = str(error).replace(str(shard), f"shard {shard.partition} of sink {options.sink!r}")
        error.args = (text.replace("start the job again", "start the query again"),)
        raise
    finally:
        store.close()


def _with_row(reason: str, attempt: TableAttempt, shard: TopicPartition) -> str:
    """Return a reason with the values of a row in place of its position."""

    def shown(found: re.Match[str]) -> str:
        row = attempt.kept(int(found[1]))
        assert isinstance(row, SparkRow), "it was not written"
        begin = orjson.dumps({**row.columns}, str).decode()[:DESCRIBED]
        return f"row {int(found[1]) % 2**ROW_BITS} of shard {shard.partition} ({begin})"

    return re.sub(rf"the row of record {re.escape(str(shard))}@(\d+)", shown, reason)


def _now_ms() -> int:
    return round(time.time() * 1000)


def _as_batch(entry: Any) -> SinkBatch | None:
    return None if entry is None else SinkBatch.from_entry(entry)
