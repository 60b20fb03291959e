"""What the persister needs from a database, as a protocol; `postgres/` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eosframework.processing.ports import Message
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import TableSink


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition's position as it was when this process took it over.

    Args:
        epoch: raised by every claim; only the newest may write.
        next_offset: of the first record that is not in the tables yet; None: none ever was.
    """

    partition: TopicPartition
    epoch: int
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is to be seen of whoever carries a partition's rows.

    Args:
        epoch: of the last claim; None: there was none.
        next_offset: None: nothing was ever written.
        connected: whether somebody else of the same application_name is.
    """

    epoch: int | None
    next_offset: int | None
    connected: bool


@dataclass(frozen=True, slots=True)
class Deletion:
    """In place of a row: delete the one with these keys.

    Args:
        keys: values by key column.
    """

    keys: Mapping[str, Any]


Row = Mapping[str, Any] | Any
"""A map or a pydantic model with the columns, or a `Deletion`."""


@dataclass(slots=True)
class TableRows:
    """Rows for one table in the order of their records.

    Args:
        origins: the record that each row comes from.
    """

    table: TableSink
    rows: list[Row] = field(default_factory=list[Row])
    origins: list[Message] = field(default_factory=list[Message])


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A record that gave no row, for the table of refused rows.

    Args:
        table: which the row was meant for.
        error: one line.
    """

    table: str
    origin: Message
    error: str


@dataclass(slots=True)
class Batch:
    """What one transaction does for one partition.

    Args:
        claim: of this process. Nothing is written unless epoch and position are still its own.
        next_offset: the position afterwards.
        tables: rows by table.
        refused: records that are refused already.
    """

    claim: Claim
    next_offset: int
    tables: list[TableRows]
    refused: list[RefusedRow] = field(default_factory=list[RefusedRow])

    @property
    def size(self) -> int:
        """How many rows it has."""
        return sum(len(table.rows) for table in self.tables)

    def up_to(self, offset: int) -> Batch:
        """Return the part that comes from records before `offset`."""
        tables: list[TableRows] = []
        for table in self.tables:
            count = sum(origin.offset() < offset for origin in table.origins)
            tables.append(TableRows(table.table, table.rows[:count], table.origins[:count]))
        refused = [row for row in self.refused if row.origin.offset() < offset]
        return Batch(self.claim, offset, tables, refused)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of refused rows: how many went to the table of refused rows, or nowhere."""

    dead_letters: int = 0
    skipped: int = 0


class RowStore(Protocol):
    """The database: tables, and the position of every partition."""

    def claim(self, partitions: Sequence[TopicPartition]) -> list[Claim]:
        """Take the positions over; waits for a transaction that has one of them in doubt.

        Raises:
            DatabaseAway: nothing is claimed; try again.
            StartRefused: a topic is not the one whose offsets are stored.
            RunError: the database refuses, and somebody has to mend something.
        """
        ...

    def write(self, batches: Sequence[Batch]) -> Written:
        """Write rows and positions of all batches in one transaction.

        Rows that the database refuses because of their data go the way of their table's
        `on_error`.

        Raises:
            RowRefused: with `fail`; names the row. Nothing was written.
            Overtaken: names the partitions claimed by others since. Nothing was written.
            DatabaseAway: it may or may not be written; claim again.
            RunError: the database refuses, and somebody has to mend something.
        """
        ...

    def close(self) -> None:
        """Give the connection up."""
        ...
