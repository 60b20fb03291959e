"""Row-by-row comparison of two tables, as multisets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from eosframework.errors import DatabaseRefused
from eosframework.postgres.database.connection import Connection, Database
from eosframework.postgres.database.error_classes import translating
from eosframework.postgres.database.tables.table_shapes import (
    Column,
    TableShape,
    identifier,
    read_shape,
)


@dataclass(frozen=True, slots=True)
class ComparedTables:
    """Common rows and differences of two tables.

    Args:
        columns: those compared.
        left_out: columns that only one of them has, or that the database fills by itself.
        rows: row counts of both.
        only: counts of the rows that only the one, only the other has.
        examples: of these, the first rows of either, as maps.
    """

    columns: Sequence[str]
    left_out: Sequence[str]
    rows: tuple[int, int]
    only: tuple[int, int]
    examples: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]


def compare_tables(
    database: Database, one: str, other: str, *, where: str | None, limit: int
) -> ComparedTables:
    """Compare two tables in one snapshot.

    Args:
        database: with both tables.
        one: name of a table.
        other: likewise.
        where: a SQL condition on the rows of both; None: all rows.
        limit: the most example rows of either.

    Raises:
        DatabaseUnavailable: the database is unavailable.
        DatabaseRefused: a table does not exist or may not be read, or the condition is invalid.
    """
    doing = f"compare {one} with {other} in {database.display}"
    with translating(doing), database.connect() as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        shapes = [_shape(database, connection, name) for name in (one, other)]
        compared = _compared(*shapes)
        known = dict.fromkeys(name for shape in shapes for name in shape.columns)
        columns = [_comparable(shapes[0].columns[name]) for name in compared]
        selects = _select(one, columns, where), _select(other, columns, where)
        counts = [_count(connection, select) for select in selects]
        only = [_except(*selects), _except(*reversed(selects))]
        return ComparedTables(
            compared,
            [name for name in known if name not in compared],
            (counts[0], counts[1]),
            (_count(connection, only[0]), _count(connection, only[1])),
            (_rows(connection, only[0], limit), _rows(connection, only[1], limit)),
        )


def _shape(database: Database, connection: Connection, name: str) -> TableShape:
    shape = read_shape(connection, name)
    if shape is None:
        raise DatabaseRefused(f"{database.display} has no table {name}")
    return shape


def _compared(one: TableShape, other: TableShape) -> list[str]:
    """Return the columns that rows of both define themselves, or that are keys."""
    return [
        name
        for name, column in one.columns.items()
        if name in other.columns
        and not column.computed
        and (not column.filled or (name in one.keys and not _is_numbered(column)))
    ]


def _is_numbered(column: Column) -> bool:
    """Return whether the database may have assigned the value from a sequence."""
    return column.filled and column.type.family == "integer"


def _comparable(column: Column) -> sql.Composable:
    name = sql.Identifier(column.name)
    if column.type.kind == "json":  # the only column type in use without equality
        return sql.SQL("{}::jsonb AS {}").format(name, name)
    return name


def _select(table: str, columns: Sequence[sql.Composable], where: str | None) -> sql.Composable:
    chosen = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(columns), identifier(table))
    if where is None:
        return chosen
    # A condition of the user's own on the user's own database.
    return sql.SQL("{} WHERE ({})").format(chosen, sql.SQL(where))  # pyright: ignore[reportArgumentType]


def _except(one: sql.Composable, other: sql.Composable) -> sql.Composable:
    return sql.SQL("({}) EXCEPT ALL ({})").format(one, other)


def _count(connection: Connection, select: sql.Composable) -> int:
    query = sql.SQL("SELECT count(*) FROM ({}) AS counted").format(select)
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def _rows(connection: Connection, select: sql.Composable, limit: int) -> list[Mapping[str, Any]]:
    query = sql.SQL("SELECT to_jsonb(found) FROM ({}) AS found ORDER BY found LIMIT {}")
    return [row for (row,) in connection.execute(query.format(select, sql.Literal(limit)))]
