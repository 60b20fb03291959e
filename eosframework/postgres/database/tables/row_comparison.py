"""The rows that a table should have, compared with those it has, in one snapshot.

What each partition of the input gives is written into temporary tables of their own, as it is
written into the table. The rows of a key are replaced in the order of their records, which is known
within a partition alone; so any partition's last row of a key may be the one that the table has.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, LiteralString

from psycopg import IsolationLevel, sql

from eosframework.errors import StartRefused
from eosframework.postgres.database.connection import Connection, Database, load_queries
from eosframework.postgres.database.tables.copy_rows import TableCopy, in_all, listed
from eosframework.postgres.database.tables.table_shapes import TableShape, identifier, read_shape
from eosframework.postgres.tables.table_ports import Row
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import SinkTable, TableMode

_SHOWN = 100
"""The most rows of each kind that are named."""

_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 5, 40

_queries: Any = load_queries("decisions.sql")
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows with the same values in which a table differs from its input.

    Args:
        kind: "missing": the table lacks them. "changed": it has other values under their keys.
            "repeated": it has them more often than the input gives them. "unexpected": the input
            does not give them.
        times: by how many.
        row: their columns, as text.
    """

    kind: str
    times: int
    row: str


@dataclass(frozen=True, slots=True)
class Differences:
    """The result of a comparison.

    Args:
        totals: number of rows by kind.
        first: the first ones of each kind.
    """

    totals: Mapping[str, int]
    first: Sequence[Difference]


@contextmanager
def snapshot(
    database: Database, application: str
) -> Generator[tuple[Connection, dict[TopicPartition, int]]]:
    """Open a snapshot of a database, with the offsets up to which everything is decided in it.

    Raises:
        DatabaseUnusable: any error of the database.
    """
    with database.session(f"compare rows in {database.display}") as connection:
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.silence_seconds = None
        _queries.take_as_long_as_it_takes(connection)
        found = _queries.decided_offsets(connection, application=application)
        decided = {TopicPartition(topic, number): offset or 0 for topic, number, offset in found}
        yield connection, decided
        connection.rollback()


class ExpectedRows:
    """The rows that one table should have.

    Args:
        connection: in a snapshot.
        table: the table.

    Raises:
        StartRefused: the table does not exist.
    """

    def __init__(self, connection: Connection, table: SinkTable) -> None:
        shape = read_shape(connection, table.table)
        if shape is None:
            raise StartRefused(f"table {table.table} does not exist; run: eosframework plan APP")
        self._connection = connection
        self._sink = table
        self._shape: TableShape = shape
        self._copies: dict[TopicPartition, TableCopy] = {}
        self._tables: list[sql.Identifier] = []

    @property
    def may_be_filled_by_triggers(self) -> bool:
        """True if a trigger may change a row before it is inserted."""
        return self._shape.has_trigger

    def add(self, partition: TopicPartition, rows: Sequence[Row]) -> None:
        """Add the rows of further records of a partition, in order.

        Raises:
            DataRefused: a row has a value that cannot be written.
        """
        copy = self._copies.get(partition)
        if copy is None:
            copy = self._copies[partition] = self._created()
        copy.write(self._connection, rows)

    def differences(self) -> Differences:
        """Compare the columns that all rows name, with the keys."""
        named = [copy.named for copy in self._copies.values() if copy.named]
        common = in_all(named)
        columns = [name for name in self._shape.columns if name in common or not named]
        query = _APPENDED if self._sink.mode is TableMode.APPEND else _REPLACED
        parts = [self._selected(columns, table) for table in self._tables]
        found = self._connection.execute(
            sql.SQL(query).format(
                columns=listed(columns),
                keys=listed(self._sink.keys),
                given=sql.SQL(" UNION ALL ").join(
                    parts or [self._selected(columns, identifier(self._shape.name), "WHERE false")]
                ),
                there=self._selected(columns, identifier(self._shape.name)),
                shown=_SHOWN,
            )
        ).fetchall()
        return Differences(
            {kind: total for kind, total, *_ in found},
            [
                Difference(kind, abs(times), _text(columns, values))
                for kind, _, times, *values in found
            ],
        )

    def _selected(
        self, columns: Sequence[str], table: sql.Composable, where: LiteralString = ""
    ) -> sql.Composable:
        """Return the query of a table's rows; values are equal where their texts are, NULL too."""
        return sql.SQL("SELECT {} FROM {} {}").format(
            sql.SQL(", ").join(
                sql.SQL("coalesce('=' || {0}::text, '') AS {0}").format(sql.Identifier(name))
                for name in columns
            ),
            table,
            sql.SQL(where),
        )

    def _created(self) -> TableCopy:
        """Return a writer of an empty temporary table with the columns that rows may name."""
        name = f"eos_expected_{next(_numbers)}"
        table = sql.Identifier("pg_temp", name)
        writable = [n for n, column in self._shape.columns.items() if not column.computed]
        self._connection.execute(
            sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                sql.Identifier(name), listed(writable), identifier(self._shape.name)
            )
        )
        if self._sink.keys:
            has_one_null = self._shape.has_one_null(self._sink.keys)
            self._connection.execute(
                sql.SQL("CREATE UNIQUE INDEX ON {} ({}) {}").format(
                    table,
                    listed(self._sink.keys),
                    sql.SQL("NULLS NOT DISTINCT" if has_one_null else ""),
                )
            )
        sink = replace(self._sink, table=f"pg_temp.{name}")
        shape = replace(self._shape, name=sink.table, has_policies=False)
        self._tables.append(table)
        return TableCopy(sink, shape, next(_numbers))


_APPENDED: LiteralString = """
WITH differing AS (
    SELECT {columns}, sum(times) AS surplus, bool_or(times < 0) AS is_given
    FROM (
        SELECT *, 1 AS times FROM ({there}) AS there
        UNION ALL
        SELECT *, -1 FROM ({given}) AS given
    ) AS both_sides
    GROUP BY {columns}
    HAVING sum(times) <> 0
), kinds AS (
    SELECT *, CASE WHEN surplus < 0 THEN 'missing' WHEN is_given THEN 'repeated'
        ELSE 'unexpected' END AS kind
    FROM differing
), numbered AS (
    SELECT *, sum(abs(surplus)) OVER (PARTITION BY kind) AS total,
        row_number() OVER (PARTITION BY kind ORDER BY {columns}) AS place
    FROM kinds
)
SELECT kind, total::bigint, surplus::bigint, {columns} FROM numbered
WHERE place <= {shown} ORDER BY kind, place
"""

_REPLACED: LiteralString = """
WITH there AS MATERIALIZED ({there}), given AS MATERIALIZED ({given}), kinds AS (
    SELECT 'missing' AS kind, * FROM (
        SELECT DISTINCT ON ({keys}) * FROM given
        WHERE ({keys}) NOT IN (SELECT {keys} FROM there)
    ) AS missing
    UNION ALL
    SELECT CASE WHEN ({keys}) IN (SELECT {keys} FROM given) THEN 'changed' ELSE 'unexpected' END, *
    FROM (SELECT * FROM there EXCEPT SELECT * FROM given) AS others
), numbered AS (
    SELECT *, count(*) OVER (PARTITION BY kind) AS total,
        row_number() OVER (PARTITION BY kind ORDER BY {columns}) AS place
    FROM kinds
)
SELECT kind, total, 1, {columns} FROM numbered WHERE place <= {shown} ORDER BY kind, place
"""


def _text(columns: Sequence[str], values: Sequence[str]) -> str:
    """Return a row for people: its first columns, each cut."""
    shown = [
        f"{name}={value[1:][:_SHOWN_CHARACTERS]}" if value else f"{name} is null"
        for name, value in zip(columns, values, strict=True)
    ]
    return ", ".join(shown[:_SHOWN_COLUMNS]) + (", …" if len(shown) > _SHOWN_COLUMNS else "")
