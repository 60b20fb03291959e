"""Writes of rows into a table with COPY.

Appended rows are copied directly; rows that replace or delete others go through a temporary table.
COPY takes text, so a value may be of any Python type that psycopg writes, or the text of the
column's type as JSON delivers it: a timestamp, a uuid, a number of any size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, cast

from orjson import Fragment
from psycopg import Connection, Cursor, sql
from pydantic import BaseModel

from eosframework.errors import DataRefused
from eosframework.postgres.tables.table_shapes import TableShape
from eosframework.serialization.strict_json import write_with
from eosframework.tables.table_ports import Deletion, Row
from eosframework.topology.graph.graph import SinkTable, TableMode

Values = tuple[Any, ...]

_MAP: Any = dict
_MAPS = {_MAP}


class ColumnUnknown(DataRefused):
    """A row names a column that the table did not have when it was inspected."""


class TableWriter:
    """Writes rows into one table, within the transaction of the caller.

    Args:
        sink: its mode and keys.
        shape: the table's definition.
        number: distinguishes its temporary tables from those of other tables.
    """

    def __init__(self, sink: SinkTable, shape: TableShape, number: int) -> None:
        self._sink = sink
        self._shape = shape
        self._number = number
        self._layouts: dict[tuple[Any, ...], _Layout] = {}

    def write(self, connection: Connection[Any], rows: Sequence[Row]) -> None:
        """Write rows in order.

        Raises:
            ColumnUnknown: a row names a column that the table does not have.
            DataRefused: a row has a value that cannot be written.
            psycopg.Error: the database rejects a row.
        """
        with connection.cursor() as cursor:
            for layout, run in self._runs(rows):
                if layout.deletes:
                    self._delete(cursor, layout, run)
                elif self._sink.mode is TableMode.APPEND:
                    self._copy(cursor, layout.copy_into(self._table), run)
                else:
                    self._upsert(cursor, layout, run)

    @property
    def _table(self) -> sql.Composable:
        return sql.Identifier(*self._sink.table.split("."))

    def _runs(self, rows: Sequence[Row]) -> Iterator[tuple[_Layout, Sequence[Values]]]:
        """Yield runs of consecutive rows with the same columns, as tuples."""
        if rows and (alike := self._alike(rows)) is not None:
            yield alike
            return
        for layout, run in groupby(rows, self._layout):
            yield layout, [*map(layout.values, run)]

    def _alike(self, rows: Sequence[Row]) -> tuple[_Layout, Sequence[Values]] | None:
        """Return all rows as one run if they are maps of the same columns; None: they are not.

        No Python loop over each row's names: maps of one length that all have the first one's names
        have no other.
        """
        if set(map(type, rows)) != _MAPS or len(set(map(len, rows))) != 1:
            return None
        layout = self._layout(rows[0])
        try:
            return layout, [*map(layout.values, rows)]
        except KeyError:
            return None

    def _layout(self, row: Row) -> _Layout:
        kind = _kind(row)
        layout = self._layouts.get(kind)
        if layout is None:
            layout = self._layouts[kind] = self._made(row)
        return layout

    def _made(self, row: Row) -> _Layout:
        deletes = isinstance(row, Deletion)
        if deletes:
            names = tuple(row.keys)
        else:
            names = tuple(type(row).model_fields) if isinstance(row, BaseModel) else tuple(row)
        if unknown := [name for name in names if name not in self._shape.writable]:
            raise ColumnUnknown(
                f"the row has {', '.join(unknown)}, and {self._shape.name} has only "
                f"{', '.join(sorted(self._shape.writable))} to be written"
            )
        if not names or not set(self._sink.keys) <= set(names):
            raise DataRefused(
                f"the row has no {', '.join(k for k in self._sink.keys if k not in names)}, "
                f"which is a key of {self._shape.name}"
                if names
                else "the row is empty"
            )
        json_at = tuple(i for i, name in enumerate(names) if self._shape.columns[name].is_json)
        return _Layout(
            names=names,
            deletes=deletes,
            key=_picker([names.index(key) for key in self._sink.keys]),
            values=_reader(names, json_at, row),
            stage=f"eos_{self._number}_{len(self._layouts)}",
        )

    def _upsert(self, cursor: Cursor[Any], layout: _Layout, run: Sequence[Values]) -> None:
        """Replace rows of the table with the newest row of each key."""
        newest = dict(zip(map(layout.key, run), run, strict=True))
        self._stage(cursor, layout, newest.values())
        columns = sql.SQL(", ").join(map(sql.Identifier, layout.names))
        others = [name for name in layout.names if name not in self._sink.keys]
        change = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
        )
        cursor.execute(
            sql.SQL(
                "INSERT INTO {table} ({columns}) SELECT {columns} FROM {stage} "
                "ON CONFLICT ({keys}) DO {action}"
            ).format(
                table=self._table,
                columns=columns,
                stage=sql.Identifier(layout.stage),
                keys=sql.SQL(", ").join(map(sql.Identifier, self._sink.keys)),
                action=sql.SQL("UPDATE SET {}").format(change) if others else sql.SQL("NOTHING"),
            )
        )

    def _delete(self, cursor: Cursor[Any], layout: _Layout, run: Sequence[Values]) -> None:
        self._stage(cursor, layout, run)
        same = sql.SQL(" AND ").join(
            sql.SQL("kept.{0} = gone.{0}").format(sql.Identifier(name)) for name in layout.names
        )
        cursor.execute(
            sql.SQL("DELETE FROM {} AS kept USING {} AS gone WHERE {}").format(
                self._table, sql.Identifier(layout.stage), same
            )
        )

    def _stage(self, cursor: Cursor[Any], layout: _Layout, values: Iterable[Values]) -> None:
        """Fill the layout's temporary table with these values alone."""
        stage = sql.Identifier(layout.stage)
        cursor.execute(
            sql.SQL(
                "CREATE TEMP TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS "
                "SELECT {} FROM {} WITH NO DATA"
            ).format(stage, sql.SQL(", ").join(map(sql.Identifier, layout.names)), self._table)
        )
        if layout.is_used:
            cursor.execute(sql.SQL("TRUNCATE {}").format(stage))
        layout.is_used = True
        self._copy(cursor, layout.copy_into(stage), values)

    def _copy(self, cursor: Cursor[Any], command: sql.Composed, values: Iterable[Values]) -> None:
        with cursor.copy(command) as copy:
            deque(map(copy.write_row, values), maxlen=0)

    def begin(self) -> None:
        """Note that a transaction begins: temporary tables are empty."""
        for layout in self._layouts.values():
            layout.is_used = False


@dataclass(slots=True, eq=False)
class _Layout:
    """Rows with the same columns.

    Args:
        key: returns the values of the key columns.
        values: returns a row as a tuple.
        stage: name of their temporary table.
        is_used: it may hold rows of this transaction.
    """

    names: tuple[str, ...]
    deletes: bool
    key: Callable[[Values], Any]
    values: Callable[[Any], Values]
    stage: str
    is_used: bool = field(default=False)

    def copy_into(self, target: sql.Composable) -> sql.Composed:
        """Return the COPY command into a table."""
        columns = sql.SQL(", ").join(map(sql.Identifier, self.names))
        return sql.SQL("COPY {} ({}) FROM STDIN").format(target, columns)


def _kind(row: Any) -> tuple[Any, ...]:
    """Return the key of rows that are read the same way."""
    kind = cast("type[Any]", type(row))
    if kind is _MAP:
        return tuple(row)
    if kind is Deletion:
        return (kind, *row.keys)
    return (kind,) if issubclass(kind, BaseModel) else (kind, *row)


def _picker(places: Sequence[int]) -> Callable[[Values], Any]:
    return itemgetter(*places) if places else lambda values: None


def _reader(names: tuple[str, ...], json_at: tuple[int, ...], row: Row) -> Callable[[Any], Values]:
    """Return a function that makes a tuple of a row."""
    read = _getter(names, row)
    if not json_at:
        return read

    def read_json(row: Any) -> Values:
        values = list(read(row))
        for i in json_at:
            if values[i] is not None:
                values[i] = write_with(values[i], _plain).decode()
        return tuple(values)

    return read_json


def _getter(names: tuple[str, ...], row: Row) -> Callable[[Any], Values]:
    kind: Any = attrgetter if isinstance(row, BaseModel) else itemgetter
    get: Callable[[Any], Any] = kind(*names)
    if isinstance(row, Deletion):
        return _keys_getter(get, alone=len(names) == 1)
    return (lambda row: (get(row),)) if len(names) == 1 else get


def _keys_getter(get: Callable[[Any], Any], *, alone: bool) -> Callable[[Any], Values]:
    return lambda deletion: (get(deletion.keys),) if alone else get(deletion.keys)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Decimal) and value.is_finite():
        return Fragment(str(value))
    raise TypeError(f"{type(value).__name__} has no form in JSON")
