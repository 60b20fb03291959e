"""Conversion of records to rows: decode, call the user's function if there is one, check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any, cast

from pydantic import BaseModel

from eosframework.errors import RecordFailed, raised_by_functions
from eosframework.processing.failures.failure_handler import describe, is_of_the_framework, summary
from eosframework.processing.ports import Message
from eosframework.records import Record
from eosframework.serialization.serdes import Serde
from eosframework.tables.table_ports import Batch, Claim, Deletion, RefusedRow, Row, TableRows
from eosframework.topology.graph.graph import Policy, SinkTable, TableMode, TableSink

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
