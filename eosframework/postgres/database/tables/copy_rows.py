"""Writes of rows into a table with COPY.

Appended rows are copied directly; rows that replace or delete others go through a temporary table.
COPY takes text, so a value may be of any Python type that psycopg writes, or the text of the
column's type as JSON delivers it: a timestamp, a uuid, a number of any size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, cast

import psycopg
from psycopg import Connection, Cursor, sql
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from eosframework.errors import DataRefused
from eosframework.postgres.database.error_classes import Category, classify
from eosframework.postgres.database.tables.column_values import Converter, converter
from eosframework.postgres.database.tables.table_shapes import (
    Column,
    TableShape,
    identifier,
    read_shape,
    shape_queries,
)
from eosframework.postgres.tables.table_ports import Deletion, Row
from eosframework.topology.graph.graph import SinkTable, TableMode

Values = tuple[Any, ...]

_PLACE = sql.Identifier("eos:place")
"""The column of the temporary table with the order of rows; no name of a user's has a colon."""

_MAP: Any = dict
_MAPS = {_MAP}

MOST_KINDS = 1_000
"""Combinations of types whose conversions are remembered for rows with the same columns."""


class TableCopy:
    """Writes rows into one table, within the transaction of the caller.

    Args:
        sink: its mode and keys.
        shape: the table's definition.
        number: distinguishes its temporary table from those of other writers.
    """

    def __init__(self, sink: SinkTable, shape: TableShape, number: int) -> None:
        self._sink = sink
        self._shape = shape
        self._stage_name = sql.Identifier(f"eos_{number}")
        self._columns = [
            (name, column.sql_type) for name, column in shape.columns.items() if not column.computed
        ]
        self._is_used = False
        self._is_confirmed = False
        self._layouts: dict[tuple[Any, ...], _Layout] = {}

    def write(self, connection: Connection[Any], rows: Sequence[Row]) -> None:
        """Write rows in order.

        Raises:
            DataRefused: a row has a value that cannot be written, or the table has other columns
                than when it was inspected.
            psycopg.Error: the database rejects a row.
        """
        with connection.cursor() as cursor:
            for layout, run in self._runs(rows):
                self._write_run(cursor, layout, run)
            if not self._is_confirmed:
                self._confirm(cursor)

    def _write_run(self, cursor: Cursor[Any], layout: _Layout, run: Sequence[Values]) -> None:
        if layout.deletes:
            self._delete(cursor, layout, run)
        elif self._sink.mode is not TableMode.APPEND:
            self._upsert(cursor, layout, run)
        elif self._shape.has_policies:  # COPY takes no table with row-level security.
            self._insert(cursor, layout, run)
        else:
            self._copy(cursor, layout.copy_into(self._table), run)

    def is_refused_by_types(self, connection: Connection[Any], row: Row) -> bool:
        """Return whether the types of its columns refuse a row's values; it is not written.

        Raises:
            psycopg.Error: the same columns without any row are refused as well.
        """
        layout = self._layout(row)
        with connection.cursor() as cursor:
            with connection.transaction(force_rollback=True):
                self._write_run(cursor, layout, [])
            try:
                with connection.transaction():
                    self._stage(cursor, layout, [])
            except psycopg.errors.InsufficientPrivilege:
                return False  # Rows that are appended need no temporary table.
            try:
                with connection.transaction(force_rollback=True):
                    self._stage(cursor, layout, [layout.values(row)])
            except psycopg.Error as error:
                if classify(error).category not in (Category.ROW, Category.EITHER):
                    raise
                return True
        return False

    def column_of_default(self, row: Row, index: str | None) -> str | None:
        """Return the column of a unique index that the database fills, not the row; None: none."""
        named = self._layout(row).names
        columns = next((known.columns for known in self._shape.unique if known.name == index), ())
        found = [n for n in columns if n not in named and self._shape.columns[n].filled]
        return found[0] if found and not self._shape.has_trigger else None

    @property
    def named(self) -> frozenset[str]:
        """The columns that all rows so far have named."""
        return in_all([known.names for known in self._layouts.values() if not known.deletes])

    @property
    def _table(self) -> sql.Composable:
        return identifier(self._sink.table)

    def _runs(self, rows: Sequence[Row]) -> Iterator[tuple[_Layout, Sequence[Values]]]:
        """Yield runs of consecutive rows with the same columns, as tuples."""
        if rows and (alike := self._alike(rows)) is not None:
            yield alike
            return
        for layout, run in groupby(rows, self._layout):
            with _converting():
                values = [*map(layout.values, run)]
            yield layout, values

    def _alike(self, rows: Sequence[Row]) -> tuple[_Layout, Sequence[Values]] | None:
        """Return all rows as one run if they are maps of the same columns; None: they are not.

        No Python loop over each row's names: maps of one length that all have the first one's names
        have no other.
        """
        if set(map(type, rows)) != _MAPS or len(set(map(len, rows))) != 1:
            return None
        layout = self._layout(rows[0])
        try:
            with _converting():
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
            given = type(row).model_fields if isinstance(row, BaseModel) else row
            names = tuple(sorted(given))
        if unknown := [name for name in names if name not in self._shape.writable]:
            raise DataRefused(
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
        declared = type(row).model_fields if isinstance(row, BaseModel) else {}
        columns = [(self._shape.columns[name], _type_of(declared.get(name))) for name in names]
        return _Layout(
            names=names,
            deletes=deletes,
            key=_picker([names.index(key) for key in self._sink.keys]),
            values=_reader(names, columns, row),
            order=self._order_of(names),
        )

    def _order_of(self, names: Sequence[str]) -> _Order:
        """Return how the newest row of a key is found."""
        keys = [(names.index(key), self._shape.columns[key]) for key in self._sink.keys]
        return _Order(tuple((i, column.equal_as) for i, column in keys))

    def _upsert(self, cursor: Cursor[Any], layout: _Layout, run: Sequence[Values]) -> None:
        """Replace rows of the table with the newest row of each key."""
        self._require_keys(layout, run)
        compares = not layout.order.is_known(run)
        if not compares:
            run = [*dict(zip(map(layout.key, run), run, strict=True)).values()]
        self._stage(cursor, layout, run)
        columns = listed(layout.names)
        others = [name for name in layout.names if name not in self._sink.keys]
        change = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
        )
        keys = listed(self._sink.keys)
        newest = sql.SQL("SELECT {} FROM {}").format(columns, self._stage_name)
        if compares:
            newest = sql.SQL("SELECT DISTINCT ON ({}) {} FROM {} ORDER BY {}, {} DESC").format(
                keys, columns, self._stage_name, keys, _PLACE
            )
        cursor.execute(
            sql.SQL("INSERT INTO {} ({}) {} ON CONFLICT ({}) DO {}").format(
                self._table,
                columns,
                newest,
                keys,
                sql.SQL("UPDATE SET {}").format(change) if others else sql.SQL("NOTHING"),
            )
        )

    def _insert(self, cursor: Cursor[Any], layout: _Layout, run: Sequence[Values]) -> None:
        self._stage(cursor, layout, run)
        cursor.execute(
            sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2} ORDER BY {3}").format(
                self._table, listed(layout.names), self._stage_name, _PLACE
            )
        )

    def _require_keys(self, layout: _Layout, run: Sequence[Values]) -> None:
        """Refuse a key that is NULL if no row could replace another by it."""
        if self._shape.has_one_null(self._sink.keys):
            return
        for key in self._sink.keys:
            place = layout.names.index(key)
            if self._shape.columns[key].nullable and None in map(itemgetter(place), run):
                raise DataRefused(f"key {key} is null, by which no row could replace another")

    def _delete(self, cursor: Cursor[Any], layout: _Layout, run: Sequence[Values]) -> None:
        self._stage(cursor, layout, run)
        same = sql.SQL(" AND ").join(
            sql.SQL(
                "kept.{0} IS NOT DISTINCT FROM gone.{0}"
                if self._shape.columns[name].nullable
                else "kept.{0} = gone.{0}"
            ).format(sql.Identifier(name))
            for name in layout.names
        )
        cursor.execute(
            sql.SQL("DELETE FROM {} AS kept USING {} AS gone WHERE {}").format(
                self._table, self._stage_name, same
            )
        )

    def _stage(self, cursor: Cursor[Any], layout: _Layout, run: Sequence[Values]) -> None:
        """Fill the temporary table with these values alone, in their order."""
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(cast("Any", kind)))
            for name, kind in self._columns
        ]
        cursor.execute(
            sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(
                self._stage_name,
                sql.SQL(", ").join([*columns, sql.SQL("{} bigint").format(_PLACE)]),
            )
        )
        if self._is_used:
            cursor.execute(sql.SQL("TRUNCATE {}").format(self._stage_name))
        self._is_used = True
        command = sql.SQL("COPY {} ({}, {}) FROM STDIN").format(
            self._stage_name, listed(layout.names), _PLACE
        )
        self._copy(cursor, command, ((*values, place) for place, values in enumerate(run)))

    def _confirm(self, cursor: Cursor[Any]) -> None:
        """Refuse what was written for other types than the target has.

        The target keeps its types until the transaction ends, because it has been written to.
        """
        table = self._table.as_string(cursor)
        if [*shape_queries.column_types(cursor.connection, table=table)] != self._columns:
            raise DataRefused(f"{self._shape.name} has other columns than before")
        self._is_confirmed = True

    def _copy(self, cursor: Cursor[Any], command: sql.Composed, values: Iterable[Values]) -> None:
        with cursor.copy(command) as copy, _converting():
            deque(map(copy.write_row, values), maxlen=0)

    def has_changed(self, connection: Connection[Any]) -> bool:
        """Return whether the table is not as it was when it was inspected."""
        return read_shape(connection, self._shape.name) != self._shape

    def begin(self) -> None:
        """Note that a transaction begins: the temporary table is empty."""
        self._is_used = self._is_confirmed = False


@contextmanager
def _converting() -> Generator[None]:
    """Take what goes wrong while values become text for the row's error, and nothing else.

    psycopg rejects values that it cannot write as text, before the server sees them.
    """
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate is not None or isinstance(error, psycopg.OperationalError):
            raise
        raise DataRefused(str(error)) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise DataRefused(f"{type(error).__name__}: {error}") from error


def in_all(named: Sequence[Iterable[str]]) -> frozenset[str]:
    """Return the names that are in all of some collections; none if there is none of these."""
    return frozenset(named[0]).intersection(*named[1:]) if named else frozenset()


def listed(names: Iterable[str]) -> sql.Composed:
    """Return names of columns for a statement, separated by commas."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


@dataclass(frozen=True, slots=True)
class _Order:
    """The newest row of a key is the last one, by what the database takes for equal.

    Args:
        keys: the place of each key column, with the type of Python whose equality is that of the
            database; None: there is none.
    """

    keys: tuple[tuple[int, type | None], ...]

    def is_known(self, run: Sequence[Values]) -> bool:
        """Return whether keys are equal where their values are equal in Python."""
        return all(
            kind is not None and set(map(type, map(itemgetter(place), run))) == {kind}
            for place, kind in self.keys
        )


@dataclass(slots=True, eq=False)
class _Layout:
    """Rows with the same columns.

    Args:
        key: returns the values of the key columns.
        values: returns a row as a tuple.
        order: which row of a key is the newest.
    """

    names: tuple[str, ...]
    deletes: bool
    key: Callable[[Values], Any]
    values: Callable[[Any], Values]
    order: _Order

    def copy_into(self, target: sql.Composable) -> sql.Composed:
        """Return the COPY command into a table."""
        columns = sql.SQL(", ").join(map(sql.Identifier, self.names))
        return sql.SQL("COPY {} ({}) FROM STDIN").format(target, columns)


def _kind(row: Any) -> tuple[Any, ...]:
    """Return the key of rows that are read the same way."""
    kind = cast("type[Any]", type(row))
    if kind is _MAP:
        return tuple(sorted(row))
    if kind is Deletion:
        return (kind, *row.keys)
    return (kind,) if issubclass(kind, BaseModel) else (kind, *row)


def _picker(places: Sequence[int]) -> Callable[[Values], Any]:
    return itemgetter(*places) if places else lambda values: None


def _type_of(field: FieldInfo | None) -> Any:
    return None if field is None else field.rebuild_annotation()


def _reader(
    names: tuple[str, ...], columns: Sequence[tuple[Column, Any]], row: Row
) -> Callable[[Any], Values]:
    """Return a function that makes a tuple of a row, converted by the types of its values."""
    read = _getter(names, row)
    known: dict[tuple[type, ...], Sequence[tuple[int, Converter]]] = {}

    def read_converted(row: Any) -> Values:
        values = read(row)
        kinds = tuple(map(type, values))
        conversions = known.get(kinds)
        if conversions is None:
            if len(known) >= MOST_KINDS:
                known.clear()
            conversions = known[kinds] = _conversions(columns, kinds)
        if not conversions:
            return values
        converted = list(values)
        for i, convert in conversions:
            converted[i] = convert(converted[i])
        return tuple(converted)

    return read_converted


def _conversions(
    columns: Sequence[tuple[Column, Any]], kinds: Sequence[type]
) -> Sequence[tuple[int, Converter]]:
    found = [
        (i, converter(column, annotation, kind))
        for i, ((column, annotation), kind) in enumerate(zip(columns, kinds, strict=True))
    ]
    return [(i, convert) for i, convert in found if convert is not None]


def _getter(names: tuple[str, ...], row: Row) -> Callable[[Any], Values]:
    kind: Any = attrgetter if isinstance(row, BaseModel) else itemgetter
    get: Callable[[Any], Any] = kind(*names)
    if isinstance(row, Deletion):
        return _keys_getter(get, alone=len(names) == 1)
    return (lambda row: (get(row),)) if len(names) == 1 else get


def _keys_getter(get: Callable[[Any], Any], *, alone: bool) -> Callable[[Any], Values]:
    return lambda deletion: (get(deletion.keys),) if alone else get(deletion.keys)
