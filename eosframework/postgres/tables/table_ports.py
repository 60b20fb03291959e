"""The table writer's port to a database, a protocol that `postgres/` implements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Protocol, cast

from pydantic import BaseModel

from eosframework.engine.failures.failure_handler import describe, is_of_the_framework, summary
from eosframework.errors import RecordFailed, raised_by_functions
from eosframework.records import Record, TopicPartition
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import Policy, SinkTable, TableMode, TableSink
from eosframework.transactions.ports import Message


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


_MAP: Any = dict
_MAPS = {_MAP}
_VALUE_OF = methodcaller("value")


class RowMaker:
    """Makes the rows of one topic.

    Args:
        sink: a topic, its serdes and its tables.
    """

    def __init__(self, sink: TableSink) -> None:
        self.skipped = 0
        self.dead_letters = 0
        self._sink = sink
        self._decode_key = _decoder(sink.key)
        self._decode_value = _decoder(sink.value)
        self._takes_maps = all(table.row is None for table in sink.tables)

    def empty(self, claim: Claim, next_offset: int) -> Batch:
        """Return a batch without rows."""
        return Batch(claim, next_offset, [TableRows(table) for table in self._sink.tables])

    def add(self, messages: Sequence[Message], batch: Batch) -> None:
        """Add the rows of messages, in offset order.

        Raises:
            RecordFailed: a record gives no row and the policy is to fail; the batch contains the
                rows of all earlier records.
            SchemaRegistryUnavailable: the schema registry does not answer; the batch must be
                discarded.
        """
        values = self._decoded(messages)
        if values is None:
            self._add_decodable(messages, batch)
        else:
            self._add_values(messages, values, batch)
        batch.next_offset = messages[-1].offset() + 1

    def _decoded(self, messages: Sequence[Message]) -> list[Any] | None:
        """Return all values without a loop in Python; None: decoding one of them failed."""
        try:
            values = [*map(self._decode_value, map(_VALUE_OF, messages))]
        except raised_by_functions():
            return None
        # A decoder that raises StopIteration ends map() without an error.
        return values if len(values) == len(messages) else None

    def _add_decodable(self, messages: Sequence[Message], batch: Batch) -> None:
        for message in messages:
            try:
                value = self._decode_value(message.value())
            except raised_by_functions() as error:
                self._give_up(self._sink.on_error, "", message, error, batch)
            else:
                self._add_values([message], [value], batch)

    def _add_values(self, messages: Sequence[Message], values: list[Any], batch: Batch) -> None:
        if self._takes_maps and set(map(type, values)) == _MAPS:
            for rows in batch.tables:
                rows.rows += values
                rows.origins += messages
            return
        for message, value in zip(messages, values, strict=True):
            for rows in batch.tables:
                self._add_rows(rows, message, value, batch)

    def _add_rows(self, into: TableRows, message: Message, value: Any, batch: Batch) -> None:
        table = into.table
        try:
            if table.row is None:
                made = [self._row(table, message, value)]
            else:
                made = _listed(table.row.call(self._record(message, value)))
        except raised_by_functions() as error:
            self._give_up(table.on_error, table.table, message, error, batch)
            return
        into.rows += made
        into.origins += [message] * len(made)

    def _row(self, table: SinkTable, message: Message, value: Any) -> Row:
        if value is not None:
            return _checked(value)
        if table.mode is not TableMode.UPSERT_DELETE:
            raise ValueError(
                f"the value is null, which {table.table} accepts only in mode upsert_delete"
            )
        return Deletion(_keys(table, self._decode_key(message.key())))

    def _record(self, message: Message, value: Any) -> Record:
        return Record(
            key=self._decode_key(message.key()),
            value=value,
            timestamp=max(message.timestamp()[1], 0),
            headers=message.headers() or (),
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
        )

    def _give_up(
        self, policy: Policy, table: str, message: Message, error: BaseException, batch: Batch
    ) -> None:
        if is_of_the_framework(error):
            raise error
        match policy:
            case Policy.SKIP:
                self.skipped += 1
            case Policy.DEAD_LETTER:
                self.dead_letters += 1
                batch.refused.append(RefusedRow(table, message, summary(error)))
            case Policy.FAIL:
                aim = f" for table {table}" if table else ""
                raise RecordFailed(
                    f"{describe(message)} gives no row{aim}: {summary(error)}. Nothing after it "
                    f"was written. Fix the record or the function, or continue without the "
                    f"record: on_error: skip or dead_letter",
                    offset=message.offset(),
                ) from error


def _decoder(serde: Serde) -> Callable[[bytes | None], Any]:
    decode = serde.decode
    if decode is None:
        return lambda data: data
    return lambda data: None if data is None else decode(data)


def _listed(made: Any) -> list[Row]:
    if made is None:
        return []
    if isinstance(made, Mapping | BaseModel | Deletion):
        return [cast("Row", made)]
    if isinstance(made, str | bytes) or not isinstance(made, Iterable):
        raise TypeError(f"row gave {type(made).__name__}: {made!r:.80}; expected a map or a model")
    return [_checked(row) for row in cast("Iterable[Any]", made)]


def _checked(row: Any) -> Row:
    if isinstance(row, Mapping | BaseModel | Deletion):
        return cast("Row", row)
    raise TypeError(f"expected a row as a map or a model, got {type(row).__name__}: {row!r:.80}")


def _keys(table: SinkTable, key: Any) -> Mapping[str, Any]:
    if isinstance(key, BaseModel):
        key = key.model_dump()
    if isinstance(key, Mapping):
        given = cast("Mapping[str, Any]", key)
        if missing := [name for name in table.keys if name not in given]:
            raise ValueError(f"the record's key {key!r:.80} has no {', '.join(missing)}")
        return {name: given[name] for name in table.keys}
    if len(table.keys) != 1 or key is None:
        raise ValueError(
            f"the record's key is {key!r:.80}; expected a map with {', '.join(table.keys)}, which "
            f"identifies the row to delete"
        )
    return {table.keys[0]: key}
