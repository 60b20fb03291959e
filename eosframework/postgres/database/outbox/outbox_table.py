"""The outbox as a table, filled by `publish`, in the order of its numbers.

The frontier of the outbox: below it every row is visible or will never exist.
A row takes its number from a sequence before its transaction commits, so a lower number can
appear after a higher one. A writer holds a lock on the table from before it takes its first number
until after its row became visible or was rolled back. So:

    FR1  read the last number that the sequence gave out
    FR2  after that, list the transactions that hold the table's lock
    FR3  once all of them have ended, every row up to that number is final

A transaction that takes the lock after FR2 takes higher numbers. So rows are sent in the order of
their numbers, and where users' transactions lock a key before they publish, the numbers of one key
are in the order of those locks. Transaction ids give no such order, not even below the oldest
running one:

    1  B takes id 10
    2  C takes id 11 and stays open
    3  A takes id 12, locks a key, publishes 1, commits
    4  B locks the same key, publishes 2, commits: the rows below id 11 contain 2 and not yet 1
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter
from typing import Any

from psycopg.abc import Buffer
from psycopg.adapt import Loader, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, Format
from psycopg.types.numeric import Int8BinaryLoader

from eosframework.config import OutboxSourceKind
from eosframework.engine.failures.failure_handler import writable
from eosframework.errors import StartRefused
from eosframework.postgres.database.connection import Connection, Database
from eosframework.postgres.database.outbox.relay_session import RelaySession, outbox_queries
from eosframework.postgres.outbox.publication import headers_of
from eosframework.postgres.outbox.relay_position import (
    ID_HEADER,
    Backlog,
    Batch,
    Candidate,
    DatabaseState,
    Refused,
    RelayPosition,
)
from eosframework.postgres.outbox.sharding import lane_of
from eosframework.transactions.ports import Output


@dataclass(frozen=True, slots=True)
class Look:
    """The result of FR1 and FR2.

    Args:
        number: the last one that the sequence gave out; 0: none yet.
        writers: transactions that hold the table's lock, by names that are never used again.
        prepared: the same for prepared transactions (two-phase commit); preparing renames one.
    """

    number: int
    writers: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Mark:
    """A number that becomes final when all of `pending` have ended."""

    number: int
    pending: frozenset[str]
    prepared: frozenset[str]


class Frontier:
    """The frontier of one outbox, from looks that are taken in one database session."""

    def __init__(self) -> None:
        self._final = 0
        self._mark: _Mark | None = None

    @property
    def final(self) -> int:
        """The number up to which every row is visible or will never exist."""
        return self._final

    @property
    def waits(self) -> bool:
        """True while rows beyond `final` wait for an open transaction."""
        return self._mark is not None

    def take(self, look: Look) -> int:
        """Note a look and return the final number, valid for snapshots taken after the look."""
        if self._mark is not None:
            self._mark = _later(self._mark, look)
            if not self._mark.pending:
                self._final = self._mark.number
                self._mark = None
        if self._mark is None and look.number > self._final:
            pending = look.writers | look.prepared
            if pending:
                self._mark = _Mark(look.number, pending, look.prepared)
            else:
                self._final = look.number
        return self._final


def _later(mark: _Mark, look: Look) -> _Mark:
    """Return the mark with the transactions that are still open.

    A writer that no longer holds the lock may have been prepared instead of ended, under a new
    name. The new names cannot be attributed to writers, so the mark waits for all of them.
    """
    pending = mark.pending & (look.writers | look.prepared)
    if mark.pending - pending - mark.prepared:
        pending |= look.prepared - mark.prepared
    return replace(mark, pending=pending, prepared=look.prepared)


_CLEAN_ROWS = 5000
_CANDIDATE_ROWS = 2000

_COUNTED_ROWS = 10_000
"""The most waiting messages that are counted; more are estimated by their numbers."""

LARGE_BYTES = 8192
"""The largest column size of rows that may be read without a limit on the batch's bytes."""

_ZERO_MILLISECONDS = 946_684_800_000
"""From 1970 to 2000, the epoch of PostgreSQL's timestamps."""

_SMALL_BYTES = 2 * LARGE_BYTES + 65_536
"""The largest size of a message that is not read by size: key, value, and the most headers."""

_NUMBER = itemgetter(0)
_LARGE = itemgetter(7)
_SIZE = 8
"""Index of the size column, which only rows read by size have; the lane follows it."""

_SIZE_OF = itemgetter(_SIZE)

_INT8 = 20
"""The type's OID in every PostgreSQL."""


class _JsonText(Loader):
    """Leaves JSON undecoded: invalid headers of one row must not fail the read of all rows."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)[1:]  # without the format's version byte


class _PipelinedQuery:
    """One pending query; the connection is busy until its result is read.

    psycopg's cursors send and wait in one step. Here they are two: the query is sent at once, with
    its Sync, so that the server is idle again as soon as it has answered. When the result is read,
    the connection's buffers already hold as much of it as they can.

    Args:
        connection: in autocommit.
        sql: a query with $1 and so on in place of numbers.
        numbers: its parameters.

    Raises:
        psycopg.Error: it could not be sent.
    """

    def __init__(self, connection: Connection, sql: str, numbers: Sequence[int]) -> None:
        self._connection = connection
        self._rows: Sequence[tuple[Any, ...]] | None = None
        server = connection.pgconn
        server.send_query_params(
            sql.encode(),
            [b"%d" % number for number in numbers],
            param_types=[_INT8] * len(numbers),
            result_format=Format.BINARY,
        )
        connection.wait(send(server))

    def rows(self) -> Sequence[tuple[Any, ...]]:
        """Wait for the result, once, and return it as the connection's adapters load it.

        Raises:
            psycopg.Error: as a cursor raises it.
        """
        if self._rows is None:
            self._rows = self._taken()
        return self._rows

    def _taken(self) -> Sequence[tuple[Any, ...]]:
        [result] = self._connection.wait(fetch_many(self._connection.pgconn))
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result, encoding=self._connection.info.encoding)
        loading = Transformer(self._connection)
        loading.set_pgresult(result)
        return loading.load_rows(0, result.ntuples, tuple)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A query sent before its result is needed."""

    numbers: Sequence[int]
    asked: _PipelinedQuery


class TableSource(RelaySession):
    """The `OutboxSource` that reads eosframework.outbox.

    Args:
        batch_bytes: the size of one read, unless a single message is larger.
        message_bytes: the largest message to read.
    """

    def __init__(
        self, database: Database, *, batch_bytes: int, message_bytes: int, **session: Any
    ) -> None:
        super().__init__(database, **session)
        self._batch_bytes = batch_bytes
        self._message_bytes = message_bytes
        self._frontier = Frontier()
        self._on_disk = 0
        self._is_large = False
        self._ahead: _Ahead | None = None

    def begin(self, connection: Connection, wal_level: str) -> None:
        """Drop the state of an earlier session: a crash may have undone what it saw.

        Raises:
            StartRefused: the sequence caches numbers per session, so they do not show an order.
        """
        self._frontier = Frontier()
        self._on_disk = 0
        connection.adapters.register_loader("timestamptz", Int8BinaryLoader)
        connection.adapters.register_loader("jsonb", _JsonText)
        outbox_queries.read_by_number(connection)
        _, cache = outbox_queries.numbers(connection)
        if cache != 1:
            raise StartRefused(
                f"the sequence eosframework.outbox_number_seq of {self.place} has CACHE {cache}: "
                f"sessions keep numbers for later, and messages would be lost; run ALTER SEQUENCE "
                f"eosframework.outbox_number_seq CACHE 1, and end the sessions that publish"
            )

    def close(self) -> None:
        """End the session, and with it every lock."""
        self._ahead = None
        super().close()

    @contextmanager
    def doing(self, what: str) -> Generator[Connection]:
        """Use the connection, after the result of a query sent ahead was read."""
        with super().doing(what) as connection:
            ahead, self._ahead = self._ahead, None
            if ahead is not None:
                ahead.asked.rows()
            yield connection

    def same_source(self, others: set[str], with_slots: set[str]) -> set[str]:
        """Return the relays that read the table: those without a slot."""
        return others - with_slots

    def look(self) -> bool:
        """Read up to which number the outbox is final; return whether more will become final.

        Final numbers are flushed to disk first: after a crash an unflushed number could be given
        out again, and a sent row could be missing.
        """
        with self.doing("look at the outbox") as connection:
            number, _ = outbox_queries.numbers(connection)
            if number <= self._on_disk:
                return False
            writers = list(outbox_queries.writers(connection))
            final = self._frontier.take(
                Look(
                    number,
                    frozenset(name for name, is_prepared in writers if not is_prepared),
                    frozenset(name for name, is_prepared in writers if is_prepared),
                )
            )
            if final > self._on_disk:
                written, flushed = outbox_queries.written(connection)
                if flushed < written:
                    outbox_queries.flush(connection)
                self._on_disk = final
        return self._frontier.waits

    def found(self, shard: int) -> DatabaseState:
        """Return the database's state, to compare it with a position."""
        with self.doing("look at the outbox") as connection:
            number, _ = outbox_queries.numbers(connection)
        return self.described(OutboxSourceKind.TABLE, shard, first=0, last=number)

    def start(self, shard: int, found: DatabaseState) -> int:
        """Return the number after which a shard starts that was never relayed: 0."""
        return 0

    def read(self, shard: int, after: RelayPosition, limit: int) -> Batch:
        """Return messages after a position that were final at the last `look`."""
        final = self._on_disk
        if after.through >= final:
            return Batch((), (), after, True)
        rows, is_last = self._read(shard, self.shards, after.through, limit)
        position = replace(after, through=final if is_last else rows[-1][0])
        by_size = bool(rows) and len(rows[0]) > _SIZE
        largest = max(map(_SIZE_OF, rows)) if by_size else _SMALL_BYTES
        if not by_size or largest <= self._message_bytes:
            with suppress(ValueError):
                places = [*zip(map(_NUMBER, rows), repeat(0))]
                return Batch(_outputs(rows), places, position, is_last, largest)
        found = [(row, *self._readable(row)) for row in rows]
        return Batch(
            [output for _, output, wrong in found if wrong is None],
            [(row[0], 0) for row, _, wrong in found if wrong is None],
            position,
            is_last,
            largest,
            [Refused((row[0], 0), row[6], row[1], wrong) for row, _, wrong in found if wrong],
        )

    def read_ahead(self, shard: int, after: RelayPosition, limit: int) -> None:
        """Send the query of the next `read`.

        Not for large values, which would wait here alongside those that are sent. And not through a
        Unix socket: a server that waits there for a suspended process never ends its session.
        """
        if self._is_large or after.through >= self._on_disk:
            return
        numbers = self._numbers(shard, self.shards, after.through, limit)
        with self.doing("read the outbox") as connection:
            if connection.info.host.startswith("/"):
                return
            self._ahead = _Ahead(
                numbers, _PipelinedQuery(connection, outbox_queries.read.sql, numbers)
            )

    def take_in(self) -> None:
        """Read the result of a query sent ahead.

        A server whose answer is not read counts the connection as lost before long.
        """
        if self._ahead is not None:
            with super().doing("read the outbox"):
                self._ahead.asked.rows()

    def backlog(self, shard: int, after: RelayPosition) -> Backlog:
        """Return the messages after a position, final or not."""
        with self.doing("count what waits") as connection:
            count, seconds = outbox_queries.backlog(
                connection,
                through=after.through,
                shards=self.shards,
                shard=shard,
                limit=_COUNTED_ROWS,
            )
            if count == _COUNTED_ROWS:
                number, _ = outbox_queries.numbers(connection)
                count = max(count, (number - after.through) // self.shards)
        return Backlog(messages=count, oldest_seconds=float(seconds))

    def clean(self, shard: int, through: RelayPosition) -> bool:
        """Remove some messages below a committed position; return whether more is left."""
        with self.doing("remove sent messages") as connection:
            removed = outbox_queries.clean(
                connection,
                through=through.through,
                shards=self.shards,
                shard=shard,
                limit=_CLEAN_ROWS,
            )
            if removed:
                outbox_queries.note_cleaned(
                    connection, name=self.name, shard=shard, through=through.through
                )
        return removed == _CLEAN_ROWS

    def candidates(self) -> Iterator[Candidate]:
        """Return all messages of the outbox that were final at the last `look`."""
        after, is_last = 0, False
        while not is_last:
            rows, is_last = self._read(0, 1, after, _CANDIDATE_ROWS)
            for row in rows:
                output, wrong = self._readable(row)
                lane = row[_SIZE + 1] if len(row) > _SIZE else lane_of(row[3], row[0])
                yield Candidate(row[6], lane, row[0], output, unsendable=wrong)
            after = rows[-1][0] if rows else after

    def end(self) -> int:
        """Return the number up to which all was final at the last `look`."""
        return self._on_disk

    def notes(self) -> list[str]:
        """Return warnings about messages that are missing from `candidates`."""
        return []

    def begin_behind(self, shard: int, number: int) -> int:
        """Make sure that a shard can be read after `number`: a table always can."""
        return number

    def retire(self, shard: int) -> None:
        """Remove the state of a shard that no longer exists."""
        with self.doing("remove a shard") as connection:
            outbox_queries.retire(connection, name=self.name, shard=shard)

    def set_aside(self, refused: Sequence[Refused]) -> None:
        """Move rows that cannot be sent out of the outbox."""
        with self.doing("set messages aside") as connection:
            outbox_queries.set_aside(
                connection,
                numbers=[one.place[0] for one in refused],
                reasons=[writable(one.reason) for one in refused],
                relay=self.name,
            )

    def name_of(self, refused: Refused) -> str:
        """Return a message's name for a user, with the way to remove it."""
        number, _ = refused.place
        return (
            f"message {number} of eosframework.outbox in {self.place}, for topic "
            f"{refused.topic[:249]} (to give it up: DELETE FROM eosframework.outbox WHERE number = "
            f"{number})"
        )

    def _read(self, shard: int, shards: int, after: int, limit: int) -> tuple[Sequence[Any], bool]:
        """Return rows, and whether no final row follows them.

        Large values are rare or the rule: after the first one, rows are read by their sizes until
        they are small again.
        """
        numbers = self._numbers(shard, shards, after, limit)
        if not self._is_large:
            rows = self._small(numbers)
            # Not a loop in Python: all rows pass here, and a large one is rare.
            if 1 not in map(_LARGE, rows):
                return rows, len(rows) < limit
            self._is_large = True
            if large := [*map(_LARGE, rows)].index(1):
                return rows[:large], False
        bounds = [self._batch_bytes, self._message_bytes]
        rows = self._answer(outbox_queries.read_by_size.sql, [*numbers[:-1], *bounds])
        size = rows[-1][7] if rows else 0
        self._is_large = size > LARGE_BYTES * len(rows)
        return rows, len(rows) < limit and size < self._batch_bytes

    def _readable(self, row: Sequence[Any]) -> tuple[Output, str | None]:
        """Return a row's message, and why it cannot be sent; None: no reason is known."""
        size = row[_SIZE] if len(row) > _SIZE else 0
        if size > self._message_bytes:
            return _bare(row), (
                f"it has {size} bytes, and the relay sends at most {self._message_bytes} "
                f"(message.max.bytes in kafka.properties)"
            )
        try:
            return _outputs([row])[0], None
        except ValueError as error:
            return _bare(row), f"its headers cannot be read ({error})"

    def _numbers(self, shard: int, shards: int, after: int, limit: int) -> list[int]:
        return [after, self._on_disk, shards, shard, limit, LARGE_BYTES]

    def _small(self, numbers: Sequence[int]) -> Sequence[Any]:
        """Return the result of the query sent ahead, or of a new one."""
        if self._ahead is None or self._ahead.numbers != numbers:
            return self._answer(outbox_queries.read.sql, numbers)
        ahead, self._ahead = self._ahead, None
        with super().doing("read the outbox"):
            return ahead.asked.rows()

    def _answer(self, sql: str, numbers: Sequence[int]) -> Sequence[Any]:
        with self.doing("read the outbox") as connection:
            return _PipelinedQuery(connection, sql, numbers).rows()


def _outputs(rows: Sequence[Any]) -> list[Output]:
    """Return the records to produce; a message's id follows the user's headers.

    One expression over all rows: a call for each took twice as long.

    Raises:
        ValueError: headers are invalid.
    """
    return [
        (
            topic,
            value,
            key,
            -1,
            None,
            None,
            at // 1000 + _ZERO_MILLISECONDS,
            [(ID_HEADER, id_)] if headers is None else [*headers_of(headers), (ID_HEADER, id_)],
        )
        for _, topic, value, key, at, headers, id_, *_ in rows
    ]


def _bare(row: Sequence[Any]) -> Output:
    return _outputs([[*row[:5], None, row[6], None]])[0]
