"""Rows and positions in PostgreSQL: one transaction for both, one claim for each owner.

A claim (P1 of `postgres/tables/position_claims`) raises the epoch of the position's row, which
waits for a transaction that has locked it. A write (P3) advances each position whose epoch and
offset are those of the claim; a zombie's are not, and its transaction is rolled back. Then the
rows; then COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from eosframework.engine.failures.failure_handler import writable
from eosframework.errors import (
    DatabaseRefused,
    DatabaseUnavailable,
    DataRefused,
    InstanceFenced,
    RowRefused,
    RowsRefused,
    StartRefused,
    Superseded,
)
from eosframework.postgres.database.connection import Connection, Database, load_queries
from eosframework.postgres.database.error_classes import (
    Category,
    as_refusal,
    classify,
    commit,
    explain,
    translating,
)
from eosframework.postgres.database.tables.copy_rows import TableCopy
from eosframework.postgres.database.tables.table_shapes import identifier, read_shape
from eosframework.postgres.tables.table_ports import (
    Batch,
    Claim,
    Deletion,
    RefusedRow,
    Row,
    Seen,
    TableRows,
    Written,
)
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Policy, SinkTable
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Message

_sink_queries: Any = load_queries("spark_sinks.sql")


class OwnedSinkRow:
    """A sink that this driver owns, by an epoch that each driver increments.

    Args:
        database: with the schema.
        application: owner of the sink.
        sink: its name.
        judge: called with the last batch, as JSON data or None; what it raises leaves the sink to
            the driver that owns it.

    Attributes:
        batch: the last batch, as JSON data; None: there was none.

    Raises:
        DatabaseUnusable: the database is unavailable.
    """

    def __init__(
        self,
        database: Database,
        application: str,
        sink: str,
        judge: Callable[[Any], object],
    ) -> None:
        self._database = database
        self._application = application
        self._sink = sink
        doing = f"own sink {sink} in {database.display}"
        with database.session(doing) as connection:
            epoch, self.batch = _sink_queries.own_sink(
                connection, application=application, sink=sink
            )
            judge(self.batch)
            commit(connection, doing)
        self._epoch = epoch

    def record(self, batch: Any) -> None:
        """Record the last batch.

        Raises:
            InstanceFenced: another driver owns the sink; nothing was recorded.
            DatabaseUnusable: it may or may not be recorded; own the sink again.
        """
        doing = f"record a batch of sink {self._sink} in {self._database.display}"
        with self._database.session(doing) as connection:
            epoch = _sink_queries.record_batch(
                connection,
                application=self._application,
                sink=self._sink,
                epoch=self._epoch,
                batch=Jsonb(batch),
            )
            if epoch is None:
                raise InstanceFenced(
                    f"sink {self._sink!r} of application {self._application!r} was taken over by "
                    f"another driver, which continues it; this one ends, and wrote nothing more"
                )
            commit(connection, doing)
        self.batch = batch


_queries: Any = load_queries("table_positions.sql")


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A position in the database.

    Args:
        topic_id: of the topic that the offset belongs to.
        next_offset: None: nothing was ever written.
    """

    partition: TopicPartition
    topic_id: str
    next_offset: int | None


def stored_positions(database: Database, application: str) -> list[StoredPosition]:
    """Return the positions of an application, sorted.

    Raises:
        DatabaseUnusable: the database is unavailable, or has no schema yet.
    """
    database.require()
    with database.session(f"read positions in {database.display}") as connection:
        rows = list(_queries.known_positions(connection, application=application))
    return [StoredPosition(TopicPartition(*row[:2]), *row[2:]) for row in rows]


def store_positions(
    database: Database,
    application: str,
    positions: Sequence[StoredPosition],
    emptied: Sequence[str] = (),
) -> None:
    """Set positions, all or none, and revoke the claims of running table writers.

    Args:
        database: of the table sinks.
        application: its name.
        positions: to set.
        emptied: tables whose rows are deleted in the same transaction. The positions come first, so
            a table writer that is in a transaction has ended it before rows are deleted.

    Raises:
        DatabaseUnusable: they may or may not be set; repeat the call.
    """
    doing = f"set positions in {database.display}"
    database.require()
    with database.session(doing) as connection:
        _queries.set_positions(
            connection,
            application=application,
            topics=[position.partition.topic for position in positions],
            partitions=[position.partition.partition for position in positions],
            topic_ids=[position.topic_id for position in positions],
            next_offsets=[position.next_offset for position in positions],
        )
        for table in emptied:
            connection.execute(sql.SQL("DELETE FROM {}").format(identifier(table)))
        commit(connection, doing)


def move_untouched(
    database: Database,
    application: str,
    topic_id: str,
    partitions: Sequence[TopicPartition],
    begin: int,
    after: int,
) -> bool:
    """Move positions from the begin of a range past its end, or return that some of it is written.

    Args:
        database: of the table sinks.
        application: its name.
        topic_id: of the partitions, which are of one topic.
        partitions: at least one.
        begin: of the range.
        after: the position afterwards; a position there was moved before.

    Returns:
        True: no process with an earlier claim writes a row of the range; False: nothing is changed.

    Raises:
        DatabaseUnusable: the positions may or may not be moved; repeat the call.
    """
    doing = f"set positions in {database.display}"
    of_topic = {
        "application": application,
        "topics": [partition.topic for partition in partitions],
        "partitions": [partition.partition for partition in partitions],
        "topic_ids": [topic_id] * len(partitions),
    }
    with database.session(doing) as connection:
        found = [row[-1] for row in _queries.claim_positions(connection, **of_topic)]
        if any(offset is not None and begin < offset < after for offset in found):
            connection.rollback()
            return False
        ends = [after] * len(partitions)
        _queries.set_positions(connection, **of_topic, next_offsets=ends)
        commit(connection, doing)
    return True


def seen_position(database: Database, application: str, partition: TopicPartition) -> Seen:
    """Read a position without a claim, to see whether its owner is alive.

    Raises:
        DatabaseUnavailable: the database is unavailable.
    """
    doing = f"look at a position in {database.display}"
    with translating(doing), database.connect(autocommit=True) as connection:
        return Seen(
            *_queries.seen_position(
                connection,
                application=application,
                topic=partition.topic,
                partition=partition.partition,
            )
        )


positions: Any = load_queries("table_positions.sql")


@dataclass(slots=True)
class _Refusals:
    """Counts and dead letters of rows that the database rejected.

    Args:
        accepting: tables into which a row of this transaction was written.
    """

    dead: list[RefusedRow] = field(default_factory=list[RefusedRow])
    skipped: int = 0
    accepting: set[SinkTable] = field(default_factory=set[SinkTable])


_Doubt = tuple[Message, psycopg.Error]
"""A record whose row fails alone, with an error that may be the row's or the table's."""


class PostgresRowStore:
    """A `RowStore` over one connection, opened again after an outage.

    Args:
        database: with the tables and positions.
        application: the owner of the positions.
        topic_ids: of the topics that are read, so that a recreated topic is noticed.
    """

    def __init__(self, database: Database, application: str, topic_ids: Mapping[str, str]) -> None:
        self._database = database
        self._application = application
        self._topic_ids = topic_ids
        self._connection: Connection | None = None
        self._writers: dict[SinkTable, TableCopy] = {}
        self._made_writers = 0
        self._reinspected: set[SinkTable] = set()
        self._accepted: dict[SinkTable, Row] = {}
        """The last row that each table accepted."""

    def claim(self, partitions: Sequence[TopicPartition]) -> list[Claim]:
        """Claim the positions; waits for a transaction that has locked one of them.

        Raises:
            DatabaseUnavailable: nothing is claimed; try again.
            StartRefused: a topic is not the one whose offsets are stored.
            DatabaseRefused: nothing can succeed until the cause is fixed.
        """
        doing = f"claim positions in {self._database.display}"
        connection = self._connected()
        try:
            with translating(doing):
                rows = list(
                    positions.claim_positions(
                        connection,
                        application=self._application,
                        topics=[partition.topic for partition in partitions],
                        partitions=[partition.partition for partition in partitions],
                        topic_ids=[self._topic_ids[p.topic] for p in partitions],
                    )
                )
                self._refuse_other_topics(rows)
                commit(connection, doing)
        except BaseException:
            self._disconnect()
            raise
        found = {
            TopicPartition(topic, partition): (epoch, next_offset)
            for topic, partition, _, epoch, next_offset in rows
        }
        return [Claim(partition, *found[partition]) for partition in partitions]

    def write(self, batches: Sequence[Batch]) -> Written:
        """Write rows and positions of all batches in one transaction.

        Raises:
            RowRefused: with `fail`; names the row. Nothing was written.
            Superseded: names the partitions claimed by others since. Nothing was written.
            DatabaseUnavailable: it may or may not be written; claim again.
            DatabaseRefused: nothing can succeed until the cause is fixed.
        """
        connection = self._connected()
        doing = f"write rows to {self._database.display}"
        refusals = _Refusals()
        try:
            with translating(doing):
                positions.check_at_once(connection)
                self._advance(connection, batches)
                self._reinspected.clear()
                for writer in self._writers.values():
                    writer.begin()
                for sink, rows in _by_table(batches).items():
                    self._write_table(connection, sink, rows, refusals)
                refused = [*refusals.dead, *(row for batch in batches for row in batch.refused)]
                self._put_aside(connection, refused)
                self._end(connection, doing)
        except (RowRefused, RowsRefused, Superseded):
            self._roll_back(connection)
            raise
        except BaseException:
            self._disconnect()
            raise
        return Written(len(refusals.dead), refusals.skipped)

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()

    def _put_aside(self, connection: Connection, refused: Sequence[RefusedRow]) -> None:
        """Store the records whose rows were refused with `dead_letter`."""
        for row in refused:
            self._add_dead_letter(connection, row)

    def _end(self, connection: Connection, doing: str) -> None:
        """Commit."""
        failpoints.hit("table_writer.before_commit")
        commit(connection, doing)

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect()
            self._writers.clear()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _roll_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except psycopg.Error:
            self._disconnect()

    def _refuse_other_topics(self, rows: Sequence[tuple[Any, ...]]) -> None:
        for topic, partition, stored, _, next_offset in rows:
            if stored != self._topic_ids[topic]:
                raise StartRefused(
                    f"{self._database.display} holds {topic}[{partition}] up to offset "
                    f"{next_offset} of a topic with id {stored}, and the topic of this name now "
                    f"has id {self._topic_ids[topic]}: it was deleted and created again. To "
                    f"write the new one's records as well, stop all workers and run: eosframework "
                    f"positions set APP --tables {topic}=earliest. If a table writer ran when it "
                    f"was created, it may have written records of the new one up to that offset; "
                    f"to write none twice: '{topic}[{partition}]={next_offset}'"
                )

    def _advance(self, connection: Connection, batches: Sequence[Batch]) -> None:
        """Advance the positions before any row is written: their locks make successors wait.

        Raises:
            Superseded: some are claimed by another process.
        """
        claims = [batch.claim for batch in batches]
        moved = {
            TopicPartition(*row)
            for row in positions.advance_positions(
                connection,
                application=self._application,
                topics=[claim.partition.topic for claim in claims],
                partitions=[claim.partition.partition for claim in claims],
                epochs=[claim.epoch for claim in claims],
                expected=[claim.next_offset for claim in claims],
                next_offsets=[batch.next_offset for batch in batches],
            )
        }
        if lost := [claim.partition for claim in claims if claim.partition not in moved]:
            raise Superseded(
                f"{', '.join(map(str, lost))}: claimed by another process since, so nothing was "
                f"written",
                partitions=lost,
            )

    def _write_table(
        self, connection: Connection, sink: SinkTable, rows: TableRows, refusals: _Refusals
    ) -> None:
        """Write rows; rejected ones are found by bisection."""
        doubts: list[_Doubt] = []
        self._bisect(connection, sink, rows, refusals, doubts)
        self._settle(connection, sink, refusals, doubts)

    def _bisect(
        self,
        connection: Connection,
        sink: SinkTable,
        rows: TableRows,
        refusals: _Refusals,
        doubts: list[_Doubt],
    ) -> None:
        if not rows.rows:
            return
        refused = self._attempt(connection, sink, rows.rows)
        if refused is None:
            self._note_accepted(sink, rows.rows, refusals)
            return
        if len(rows.rows) > 1:
            middle = len(rows.rows) // 2
            for half in (slice(None, middle), slice(middle, None)):
                part = TableRows(sink, rows.rows[half], rows.origins[half])
                self._bisect(connection, sink, part, refusals, doubts)
        elif isinstance(refused, DataRefused):
            self._refuse(sink, rows.origins[0], refused, refusals)
        elif self._writer(connection, sink).is_refused_by_types(connection, rows.rows[0]):
            self._refuse(sink, rows.origins[0], as_refusal(refused), refusals)
        else:
            doubts.append((rows.origins[0], refused))
            if sink.on_error is Policy.FAIL:
                self._settle(connection, sink, refusals, doubts)

    def _settle(
        self,
        connection: Connection,
        sink: SinkTable,
        refusals: _Refusals,
        doubts: Sequence[_Doubt],
    ) -> None:
        """Refuse rows that failed alone, if the table accepts another row."""
        if not doubts:
            return
        if sink not in refusals.accepting and not self._accepts_again(connection, sink):
            origin, error = doubts[0]
            raise explain(
                error, f"write the row of record {_place(origin)} to {sink.table}, nor another row"
            ) from error
        for origin, error in doubts:
            self._refuse(sink, origin, as_refusal(error), refusals)

    def _accepts_again(self, connection: Connection, sink: SinkTable) -> bool:
        """Return whether the last row that a table accepted is accepted again; undo it."""
        if sink not in self._accepted:
            return False
        with suppress(DataRefused):
            try:
                with connection.transaction(force_rollback=True):
                    self._writer(connection, sink).write(connection, [self._accepted[sink]])
            except psycopg.Error as error:
                if connection.closed:
                    raise
                refused = explain(error, f"write to {sink.table}")
                if isinstance(refused, DatabaseUnavailable):
                    raise refused from error
            else:
                return True
        return False

    def _note_accepted(self, sink: SinkTable, rows: Sequence[Row], refusals: _Refusals) -> None:
        row = next((row for row in reversed(rows) if not isinstance(row, Deletion)), None)
        if row is not None:
            self._accepted[sink] = row
            refusals.accepting.add(sink)

    def _attempt(
        self, connection: Connection, sink: SinkTable, rows: Sequence[Row]
    ) -> DataRefused | psycopg.Error | None:
        """Write rows, or return why their data is, or may be, rejected and roll them back."""
        try:
            with connection.transaction():
                self._writer(connection, sink).write(connection, rows)
        except DataRefused as error:
            if not self._is_looked_at_again(connection, sink):
                return error
        except psycopg.Error as error:
            is_refused = error.sqlstate is not None and not connection.closed
            if not (is_refused and self._is_looked_at_again(connection, sink)):
                explained = explain(error, f"write to {sink.table}")
                if isinstance(explained, DataRefused):
                    self._require_own_value(connection, sink, rows, error)
                    return explained
                if is_refused and classify(error).category is Category.EITHER:
                    return error
                raise
        else:
            return None
        return self._attempt(connection, sink, rows)

    def _require_own_value(
        self, connection: Connection, sink: SinkTable, rows: Sequence[Row], error: psycopg.Error
    ) -> None:
        """Raise if a unique value that exists is not the row's, but a sequence's."""
        if len(rows) > 1 or not isinstance(error, psycopg.errors.UniqueViolation):
            return
        writer = self._writer(connection, sink)
        if column := writer.column_of_default(rows[0], error.diag.constraint_name):
            raise DatabaseRefused(
                f"{explain(error, f'write to {sink.table}')}; the database itself fills column "
                f"{column}: set its sequence to the largest value of the table, with setval"
            ) from error

    def _is_looked_at_again(self, connection: Connection, sink: SinkTable) -> bool:
        """Forget the definition of a table that has changed; once in a transaction."""
        if sink in self._reinspected:
            return False
        self._reinspected.add(sink)
        if not self._writer(connection, sink).has_changed(connection):
            return False
        self._writers.pop(sink)
        return True

    def _refuse(
        self, sink: SinkTable, origin: Message, error: DataRefused, refusals: _Refusals
    ) -> None:
        match sink.on_error:
            case Policy.SKIP:
                refusals.skipped += 1
            case Policy.DEAD_LETTER:
                refusals.dead.append(RefusedRow(sink.table, origin, error.reason))
            case Policy.FAIL:
                raise RowRefused(
                    f"table {sink.table} refuses the row of record {_place(origin)}: "
                    f"{error.reason}. Nothing after it was written. Fix the record or the "
                    f"table, or write the others without it: on_error: skip or dead_letter",
                    partition=TopicPartition(origin.topic(), origin.partition()),
                    offset=origin.offset(),
                ) from error

    def _writer(self, connection: Connection, sink: SinkTable) -> TableCopy:
        writer = self._writers.get(sink)
        if writer is None:
            shape = read_shape(connection, sink.table)
            if shape is None:
                raise DatabaseRefused(
                    f"{self._database.display} has no table {sink.table}; run `eosframework apply`"
                )
            self._made_writers += 1
            writer = self._writers[sink] = TableCopy(sink, shape, self._made_writers)
        return writer

    def _add_dead_letter(self, connection: Connection, refused: RefusedRow) -> None:
        origin = refused.origin
        positions.add_dead_letter(
            connection,
            application=self._application,
            table_name=refused.table,
            topic=origin.topic(),
            partition=origin.partition(),
            offset_=origin.offset(),
            key=origin.key(),
            value=origin.value(),
            headers=_headers(origin),
            error=refused.error,
        )


def _place(origin: Message) -> str:
    return f"{TopicPartition(origin.topic(), origin.partition())}@{origin.offset()}"


def _by_table(batches: Iterable[Batch]) -> dict[SinkTable, TableRows]:
    """Merge the rows of all partitions by table, in the order of each partition."""
    found: dict[SinkTable, TableRows] = {}
    for batch in batches:
        for rows in batch.tables:
            joint = found.setdefault(rows.table, TableRows(rows.table))
            joint.rows += rows.rows
            joint.origins += rows.origins
    return found


def _headers(origin: Message) -> Jsonb | None:
    headers = origin.headers()
    if not headers:
        return None
    return Jsonb(
        [
            [
                writable(name),
                None if value is None else writable(value.decode(errors="backslashreplace")),
            ]
            for name, value in headers
        ]
    )
