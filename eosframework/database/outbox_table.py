"""The outbox as a table: what `publish` inserted, in the order of its numbers."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from psycopg.types.numeric import Int8BinaryLoader

from eosframework.config import OutboxSourceKind
from eosframework.database.asked import Asked
from eosframework.database.connection import Connection, Database
from eosframework.database.relay_session import RelaySession, outbox_queries
from eosframework.errors import StartRefused
from eosframework.outbox.frontier import Frontier, Look
from eosframework.outbox.lanes import lane_of
from eosframework.outbox.ports import ID_HEADER, Backlog, Batch, Candidate
from eosframework.outbox.position import Found, RelayPosition
from eosframework.outbox.publishing import decode_headers
from eosframework.processing.ports import Output

CLEAN_ROWS = 5000
CANDIDATE_ROWS = 2000

COUNTED_ROWS = 10_000
"""So many messages that wait are counted; more are estimated by their numbers."""

LARGE_BYTES = 8192
"""A batch of rows that are not larger is no burden, whatever their number."""

_ZERO_MILLISECONDS = 946_684_800_000
"""From 1970 to 2000, where PostgreSQL counts the microseconds of a time from."""

_LAST = itemgetter(7)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What was asked for before it is needed."""

    numbers: Sequence[int]
    asked: Asked


class TableSource(RelaySession):
    """The `OutboxSource` that reads eosframework.outbox.

    Args:
        batch_bytes: what is read at once, unless a single message is larger.
    """

    def __init__(self, database: Database, *, batch_bytes: int, **session: Any) -> None:
        super().__init__(database, **session)
        self._batch_bytes = batch_bytes
        self._frontier = Frontier()
        self._on_disk = 0
        self._is_large = False
        self._ahead: _Ahead | None = None

    def begin(self, connection: Connection, wal_level: str) -> None:
        """Forget what an earlier session saw: a crash may have taken it back.

        Raises:
            StartRefused: a session takes several numbers at once, so they say nothing.
        """
        self._frontier = Frontier()
        self._on_disk = 0
        connection.adapters.register_loader("timestamptz", Int8BinaryLoader)
        outbox_queries.read_by_number(connection)
        _, cache = outbox_queries.numbers(connection)
        if cache != 1:
            raise StartRefused(
                f"the sequence eosframework.outbox_number_seq of {self.place} has CACHE {cache}: "
                f"sessions keep numbers for later, and messages would be lost; run ALTER SEQUENCE "
                f"eosframework.outbox_number_seq CACHE 1, and end the sessions that publish"
            )

    def close(self) -> None:
        """End the session, and with it every right."""
        self._ahead = None
        super().close()

    @contextmanager
    def doing(self, what: str) -> Generator[Connection]:
        """Use the connection, which first has to answer what was asked ahead."""
        with super().doing(what) as connection:
            ahead, self._ahead = self._ahead, None
            if ahead is not None:
                ahead.asked.rows()
            yield connection

    def same_source(self, others: set[str], with_slots: set[str]) -> set[str]:
        """Return the relays that read the table: those without a slot."""
        return others - with_slots

    def look(self) -> bool:
        """See how far the outbox is final, and return whether more waits to become so.

        What counts as final is on disk as well: a number that is not could be given out again
        after a crash, and a row could be gone that was sent.
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

    def found(self, shard: int) -> Found:
        """Return what the database says about itself, for comparing it with a position."""
        with self.doing("look at the outbox") as connection:
            number, _ = outbox_queries.numbers(connection)
        return self.described(OutboxSourceKind.TABLE, shard, first=0, last=number)

    def start(self, shard: int, found: Found) -> int:
        """Return the number behind which a shard starts that was never relayed: the first."""
        return 0

    def read(self, shard: int, after: RelayPosition, limit: int) -> Batch:
        """Return what lies behind `after` and was final at the last `look`."""
        final = self._on_disk
        if after.through >= final:
            return Batch((), after, True)
        rows, is_last = self._read(shard, self.shards, after.through, limit)
        through = final if is_last else rows[-1][0]
        return Batch(_outputs(rows), replace(after, through=through), is_last)

    def read_ahead(self, shard: int, after: RelayPosition, limit: int) -> None:
        """Let the server begin with what `read` will be asked for next.

        Not large values: they would wait here beside those that are sent. And not through a Unix
        socket: a server that waits there for a process that stands still never ends its session.
        """
        if self._is_large or after.through >= self._on_disk:
            return
        numbers = self._numbers(shard, self.shards, after.through, limit)
        with self.doing("read the outbox") as connection:
            if connection.info.host.startswith("/"):
                return
            self._ahead = _Ahead(numbers, Asked(connection, outbox_queries.read.sql, numbers))

    def take_in(self) -> None:
        """Take what was asked for ahead off the server's hands.

        A server whose answer is not read counts the connection as lost before long.
        """
        if self._ahead is not None:
            with super().doing("read the outbox"):
                self._ahead.asked.rows()

    def backlog(self, shard: int, after: RelayPosition) -> Backlog:
        """Return what lies behind `after`, finished or not."""
        with self.doing("count what waits") as connection:
            count, seconds = outbox_queries.backlog(
                connection,
                through=after.through,
                shards=self.shards,
                shard=shard,
                limit=COUNTED_ROWS,
            )
            if count == COUNTED_ROWS:
                number, _ = outbox_queries.numbers(connection)
                count = max(count, (number - after.through) // self.shards)
        return Backlog(messages=count, oldest_seconds=float(seconds))

    def clean(self, shard: int, through: RelayPosition) -> bool:
        """Remove some of what is behind a committed position; return whether more is left."""
        with self.doing("remove sent messages") as connection:
            removed = outbox_queries.clean(
                connection,
                through=through.through,
                shards=self.shards,
                shard=shard,
                limit=CLEAN_ROWS,
            )
            if removed:
                outbox_queries.note_cleaned(
                    connection, name=self.name, shard=shard, through=through.through
                )
        return removed == CLEAN_ROWS

    def candidates(self) -> Iterator[Candidate]:
        """Return all messages that the outbox holds and that were final at the last `look`."""
        after, is_last = 0, False
        while not is_last:
            rows, is_last = self._read(0, 1, after, CANDIDATE_ROWS)
            for row, output in zip(rows, _outputs(rows), strict=True):
                yield Candidate(row[6], lane_of(row[3], row[0]), row[0], output)
            after = rows[-1][0] if rows else after

    def end(self) -> int:
        """Return the number up to which all was final at the last `look`."""
        return self._on_disk

    def notes(self) -> list[str]:
        """Return what a user has to know of messages that `candidates` cannot tell."""
        return []

    def begin_behind(self, shard: int, number: int) -> int:
        """See to it that a shard can be read behind `number`: a table always can."""
        return number

    def retire(self, shard: int) -> None:
        """Remove what belongs to a shard that there is no more."""
        with self.doing("remove a shard") as connection:
            outbox_queries.retire(connection, name=self.name, shard=shard)

    def name_of(self, output: Output, position: RelayPosition) -> str:
        """Return how a message is to be named to a user, and how it is removed."""
        return (
            f"message {position.through} of eosframework.outbox in {self.place}, for topic "
            f"{output[0]} (to give it up: DELETE FROM eosframework.outbox WHERE id = "
            f"'{output[7][-1][1]}')"
        )

    def _read(self, shard: int, shards: int, after: int, limit: int) -> tuple[Sequence[Any], bool]:
        """Return rows, and whether nothing final is left behind them.

        Large values are rare or the rule: once one is met, rows are read by their sizes until
        they are small again.
        """
        numbers = self._numbers(shard, shards, after, limit)
        if not self._is_large:
            rows = self._small(numbers)
            # Not a loop in Python: all rows pass here, and hardly ever one that is large.
            if 1 not in map(_LAST, rows):
                return rows, len(rows) < limit
            self._is_large = True
            if large := [*map(_LAST, rows)].index(1):
                return rows[:large], False
        rows = self._answer(outbox_queries.read_by_size.sql, [*numbers[:-1], self._batch_bytes])
        size = rows[-1][-1] if rows else 0
        self._is_large = size > LARGE_BYTES * len(rows)
        return rows, len(rows) < limit and size < self._batch_bytes

    def _numbers(self, shard: int, shards: int, after: int, limit: int) -> list[int]:
        return [after, self._on_disk, shards, shard, limit, LARGE_BYTES]

    def _small(self, numbers: Sequence[int]) -> Sequence[Any]:
        """Return what was asked for ahead, or ask for it."""
        if self._ahead is None or self._ahead.numbers != numbers:
            return self._answer(outbox_queries.read.sql, numbers)
        ahead, self._ahead = self._ahead, None
        with super().doing("read the outbox"):
            return ahead.asked.rows()

    def _answer(self, sql: str, numbers: Sequence[int]) -> Sequence[Any]:
        with self.doing("read the outbox") as connection:
            return Asked(connection, sql, numbers).rows()


def _outputs(rows: Sequence[Any]) -> list[Output]:
    """Return what to produce; a message's id comes behind the user's headers.

    One expression over all rows: a call for each took twice as long.
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
            [(ID_HEADER, id_)] if headers is None else [*decode_headers(headers), (ID_HEADER, id_)],
        )
        for _, topic, value, key, at, headers, id_, _ in rows
    ]
