"""Decisions in PostgreSQL: decision, offsets and rows in one transaction (V2 of `settlement`).

V2 locks the row of the id and the rows of the partitions before it writes any row of a table, so a
taker's V4 waits for a transaction whose COMMIT is in doubt. A client that is suspended in it, or
gone without a word, is waited for no longer than `BLOCKED_SECONDS`: its session is ended, while V4
has its place in the queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg

from eosframework.errors import (
    DatabaseConflict,
    DatabaseFault,
    DatabaseRefused,
    DatabaseUnavailable,
    OutcomeUnknown,
    Retriable,
    Superseded,
    TaskFenced,
    TransactionAborted,
    TransactionFatal,
)
from eosframework.postgres.database.connection import Connection, Database, load_queries
from eosframework.postgres.database.error_classes import commit, translating
from eosframework.postgres.database.tables.table_sink import PostgresRowStore
from eosframework.postgres.tables.decided_rows import DecidedRows, OpenRows, decoded, refusal
from eosframework.postgres.tables.table_ports import Batch, Claim, RefusedRow
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import TableSink
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Decided

BLOCKED_SECONDS = 5.0
"""Time for which V4 waits for a session that has locked an id, before it ends that session."""

_PAUSE_SECONDS = 0.1
"""Between two attempts to decide."""

_queries: Any = load_queries("decisions.sql")


class PostgresDecisions:
    """The `Decisions` of one process.

    Args:
        database: with the tables.
        application: its name.
        sinks: the tables that are written in decisions.
    """

    def __init__(self, database: Database, application: str, sinks: Sequence[TableSink]) -> None:
        self._database = database
        self._application = application
        self._rows = DecidedRows(sinks)
        self._deciders: dict[str, _Decider] = {}
        self._unavailable: str | None = None

    @property
    def unavailable(self) -> str | None:
        """The reason why it was not reached; see `Decisions`."""
        of_deciders = (decider.unavailable for decider in self._deciders.values())
        return next(filter(None, [self._unavailable, *of_deciders]), None)

    def take(
        self, ids: Collection[str], own: Mapping[str, Collection[TopicPartition]]
    ) -> list[Decided]:
        """Raise the epochs of ids, and return their last decisions (V4); see `Decisions`."""
        doing = f"take over what {self._database.display} decides"
        for id_ in own:
            if (earlier := self._deciders.pop(id_, None)) is not None:
                earlier.abandon()
        try:
            with translating(doing), self._database.connect() as connection:
                with self._ending_blockers(connection):
                    _queries.durable(connection)
                    taken = list(
                        _queries.take_ids(
                            connection, application=self._application, ids=sorted(set(ids))
                        )
                    )
                offsets = self._offsets(connection, [p for ps in own.values() for p in ps])
                commit(connection, doing)
        except DatabaseUnavailable as error:
            self._unavailable = str(error)
            raise Retriable(str(error)) from error
        self._unavailable = None
        for id_, epoch, _ in taken:
            if id_ in own:
                expected = {partition: offsets[partition] for partition in own[id_]}
                store = _DecisionStore(self._database, self._application, epoch)
                self._deciders[id_] = _Decider(store, expected)
        return [decoded(id_, decision) for id_, _, decision in taken if decision is not None]

    def next_offsets(self, transactional_id: str) -> Mapping[TopicPartition, int | None]:
        """Return the offsets that the database had at the last `take`; see `Decisions`."""
        return self._deciders[transactional_id].expected

    def offsets(self) -> dict[TopicPartition, int | None]:
        """Return the offsets of all partitions as they are now; see `Decisions`."""
        doing = f"read offsets in {self._database.display}"
        try:
            with translating(doing), self._database.connect(autocommit=True) as connection:
                return self._known(connection)
        except DatabaseUnavailable as error:
            raise Retriable(str(error)) from error

    def begin(self, transactional_id: str) -> OpenRows:
        """Begin a transaction; see `Decisions`."""
        return self._rows.begin(partial(self._decision_of, transactional_id))

    def _decision_of(
        self, id_: str, rows: OpenRows, positions: Sequence[Position], within_seconds: float
    ) -> Callable[[], None]:
        """Return the function that decides a transaction (V2)."""
        decider = self._deciders[id_]
        batches = [
            Batch(Claim(p.topic_partition, 0, decider.expected[p.topic_partition]), p.offset, [])
            for p in positions
            if p.topic_partition in decider.expected and p.offset is not None
        ]
        return lambda: decider.decide(
            id_, rows.encoded(positions), batches, rows.batches, within_seconds
        )

    def known_ids(self) -> list[str]:
        """Return all ids that were ever taken, sorted.

        Raises:
            DatabaseUnusable: the database is unavailable, or has no schema yet.
        """
        with self._database.session(f"read ids in {self._database.display}") as connection:
            found = _queries.known_ids(connection, application=self._application)
            return [id_ for (id_,) in found]

    def forget(self) -> None:
        """Forget the decisions, which are all in Kafka, and keep their owners from further ones.

        Raises:
            DatabaseUnusable: they may or may not be forgotten; repeat the call.
        """
        with self._changing("forget decisions") as connection:
            _queries.forget_decisions(connection, application=self._application)

    def forget_all(self) -> None:
        """Forget the decisions, and up to where everything is decided.

        Raises:
            DatabaseUnusable: they may or may not be forgotten; repeat the call.
        """
        with self._changing("forget decisions and offsets") as connection:
            _queries.forget_decisions(connection, application=self._application)
            _queries.forget_offsets(connection, application=self._application)

    def set_offsets(self, positions: Sequence[Position]) -> None:
        """Set the offsets up to which everything counts as decided.

        Raises:
            DatabaseUnusable: they may or may not be set; repeat the call.
        """
        with self._changing("set offsets") as connection:
            _queries.set_offsets(
                connection,
                application=self._application,
                topics=[position.topic for position in positions],
                partitions=[position.partition for position in positions],
                next_offsets=[position.offset for position in positions],
            )

    @contextmanager
    def _changing(self, what: str) -> Generator[Connection]:
        """Commit the changes of a command, on the disk."""
        doing = f"{what} in {self._database.display}"
        with self._database.session(doing) as connection:
            _queries.durable(connection)
            yield connection
            commit(connection, doing)

    def close(self) -> None:
        """Close the connections."""
        for decider in self._deciders.values():
            decider.abandon()
        self._deciders.clear()

    def _offsets(
        self, connection: Connection, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the offsets of partitions; no other process moves them once the ids are taken."""
        _queries.add_offsets(
            connection,
            application=self._application,
            topics=[partition.topic for partition in partitions],
            partitions=[partition.partition for partition in partitions],
        )
        return self._known(connection)

    def _known(self, connection: Connection) -> dict[TopicPartition, int | None]:
        found = _queries.decided_offsets(connection, application=self._application)
        return {TopicPartition(topic, number): offset for topic, number, offset in found}

    @contextmanager
    def _ending_blockers(self, connection: Connection) -> Generator[None]:
        """End the sessions that block a statement for longer than `BLOCKED_SECONDS`."""
        pid, due = connection.info.backend_pid, time.monotonic() + BLOCKED_SECONDS

        def look() -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + BLOCKED_SECONDS
                with (
                    suppress(DatabaseFault, psycopg.Error),
                    self._database.connect(autocommit=True) as other,
                ):
                    _queries.end_blocking(other, pid=pid)

        with connection.looking(look):
            yield


@dataclass(slots=True)
class _Decider:
    """One taken id.

    Args:
        expected: the next offset of each partition in the database.
        is_deciding: another thread may use the connection.
        unavailable: the reason why the last attempt did not reach the database.
    """

    store: _DecisionStore
    expected: dict[TopicPartition, int | None]
    is_deciding: bool = False
    unavailable: str | None = None

    def decide(
        self,
        id_: str,
        decision: bytes,
        batches: Sequence[Batch],
        rows: Sequence[Batch],
        within_seconds: float,
    ) -> None:
        """Decide a transaction (V2); waits for an unavailable database.

        Raises:
            TransactionError: see `Undecided.prepared`.
        """
        self.is_deciding = True
        try:
            failpoints.hit("decision.before_begin")
            deadline = time.monotonic() + within_seconds
            while (failure := self._failure(id_, decision, batches, rows)) is not None:
                if time.monotonic() + _PAUSE_SECONDS > deadline:
                    raise TransactionAborted(str(failure)) from failure
                time.sleep(_PAUSE_SECONDS)
        finally:
            self.is_deciding = False
        self.expected |= {batch.claim.partition: batch.next_offset for batch in batches}

    def _failure(
        self, id_: str, decision: bytes, batches: Sequence[Batch], rows: Sequence[Batch]
    ) -> DatabaseFault | None:
        """Decide, or return what another attempt may get past."""
        self.unavailable = None
        try:
            self.store.decide(id_, decision, batches, rows)
        except Superseded as error:
            raise TaskFenced(str(error)) from error
        except DatabaseConflict as error:
            return error
        except DatabaseUnavailable as error:
            self.unavailable = str(error)
            if self.store.is_sent:
                raise OutcomeUnknown(str(error)) from error
            return error
        except DatabaseRefused as error:
            raise TransactionFatal(str(error)) from error
        return None

    def abandon(self) -> None:
        """Decide nothing more; a thread that still tries gets an error."""
        if self.is_deciding:
            self.store.cut()
        else:
            self.store.close()


class _DecisionStore(PostgresRowStore):
    """The tables of one id, over one connection.

    Args:
        epoch: with which the id was taken.
    """

    def __init__(self, database: Database, application: str, epoch: int) -> None:
        super().__init__(database, application, {})
        self.is_sent = False
        self._epoch = epoch
        self._id = ""
        self._decision = b""
        self._batches: Sequence[Batch] = ()

    def decide(
        self, id_: str, decision: bytes, batches: Sequence[Batch], rows: Sequence[Batch]
    ) -> None:
        """Write decision, offsets and rows in one transaction.

        Raises:
            RowsRefused, Superseded, DatabaseConflict, DatabaseRefused: nothing was written.
            DatabaseUnavailable: nothing was written, unless `is_sent`.
        """
        self._id, self._decision, self._batches, self.is_sent = id_, decision, batches, False
        self.write(rows)

    def cut(self) -> None:
        """Cut the connection, which another thread may be using."""
        if (connection := self._connection) is not None:
            connection.cut()

    def _advance(self, connection: Connection, batches: Sequence[Batch]) -> None:
        _queries.durable(connection)
        epoch = _queries.decide(
            connection,
            application=self._application,
            id_=self._id,
            epoch=self._epoch,
            decision=self._decision,
        )
        if epoch is None:
            raise Superseded(
                f"transactional.id {self._id}: another process has taken it in "
                f"{self._database.display}, so nothing was decided",
                partitions=[batch.claim.partition for batch in self._batches],
            )
        claims = [batch.claim for batch in self._batches]
        moved = _queries.advance_offsets(
            connection,
            application=self._application,
            topics=[claim.partition.topic for claim in claims],
            partitions=[claim.partition.partition for claim in claims],
            expected=[claim.next_offset for claim in claims],
            next_offsets=[batch.next_offset for batch in self._batches],
        )
        found = {TopicPartition(*row) for row in moved}
        if lost := [claim.partition for claim in claims if claim.partition not in found]:
            raise Superseded(
                f"{', '.join(map(str, lost))}: the offset in {self._database.display} is not the "
                f"one before this transaction, so nothing was decided",
                partitions=lost,
            )

    def _put_aside(self, connection: Connection, refused: Sequence[RefusedRow]) -> None:
        if refused:
            raise refusal(refused)

    def _end(self, connection: Connection, doing: str) -> None:
        failpoints.hit("decision.before_commit")
        self.is_sent = True
        commit(connection, doing)
        failpoints.hit("decision.after_commit")
