"""The table writer's port to a database, a protocol that `postgres/` implements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eosframework.processing.ports import Message
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import SinkTable


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition's position as it was when this process took it over.

    Args:
        epoch: incremented by every claim; only the newest claim may write.
        next_offset: of the first record that is not in the tables yet; None: none was written.
    """

    partition: TopicPartition
    epoch: int
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A partition's position, read without a claim, and whether its writer is connected.

    Args:
        epoch: of the last claim; None: there was none.
        next_offset: None: no row was written yet.
        connected: another session with the same application_name is connected.
    """

    epoch: int | None
    next_offset: int | None
    connected: bool


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of the row with these keys, in place of a row.

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

    table: SinkTable
    rows: list[Row] = field(default_factory=list[Row])
    origins: list[Message] = field(default_factory=list[Message])


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A record that gave no row, for the table of refused rows.

    Args:
        table: the table that the row was meant for.
        error: one line.
    """

    table: str
    origin: Message
    error: str


@dataclass(slots=True)
class Batch:
    """One partition's part of a database transaction.

    Args:
        claim: of this process. It is written only if epoch and position are still the claim's.
        next_offset: the position after the transaction.
        tables: rows by table.
        refused: records that gave no row.
    """

    claim: Claim
    next_offset: int
    tables: list[TableRows]
    refused: list[RefusedRow] = field(default_factory=list[RefusedRow])

    @property
    def size(self) -> int:
        """Number of rows."""
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
    """Numbers of rows that the database refused, by what was done with them."""

    dead_letters: int = 0
    skipped: int = 0


class RowStore(Protocol):
    """The database with the tables and the position of every partition."""

    def claim(self, partitions: Sequence[TopicPartition]) -> list[Claim]:
        """Increment the partitions' epochs and return the positions.

        Waits for open transactions that write one of them, so a COMMIT in doubt is decided.

        Raises:
            DatabaseUnavailable: nothing is claimed; try again.
            StartRefused: a topic was created again since its offsets were stored.
            RunError: the database refuses the claim until its cause is fixed.
        """
        ...

    def write(self, batches: Sequence[Batch]) -> Written:
        """Write rows and positions of all batches in one transaction.

        Rows that the database refuses because of their data are handled by their table's
        `on_error`.

        Raises:
            RowRefused: with `fail`; names the row. Nothing was written.
            Superseded: names the partitions that others have claimed since. Nothing was written.
            DatabaseUnavailable: the outcome is unknown; claim again.
            RunError: the database refuses the transaction until its cause is fixed.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
