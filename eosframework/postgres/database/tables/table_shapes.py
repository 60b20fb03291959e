"""Definitions of existing tables: columns, types and unique indexes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from sqlalchemy.dialects.postgresql import dialect

from eosframework.postgres.database.connection import load_queries
from eosframework.topology.spec.topology_spec import relation_parts

shape_queries: Any = load_queries("table_shapes.sql")

FAMILIES = {
    "bool": "boolean",
    "int2": "integer",
    "int4": "integer",
    "int8": "integer",
    "float8": "double",
    "float4": "real",
    "numeric": "numeric",
    "text": "text",
    "varchar": "text",
    "bpchar": "text",
    "citext": "text",
    "enum": "enum",
    "bytea": "bytea",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "interval": "interval",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "json",
}
"""Families of types by PostgreSQL's own name. Ranges and types of extensions are "other"."""

MICROSECONDS = 6
_TABLES = {"r", "p"}
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
_MODIFIERS = re.compile(r"\((\d+)(?:,(-?\d+))?\)")
_FIELDS = re.compile(r"interval (?:year|month|day|hour|minute|second)")
_quote = dialect().identifier_preparer.quote


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column, or of the elements of an array; that below a domain.

    Args:
        kind: PostgreSQL's own name: "int8", "timestamptz"; "enum" for every enum.
        places: the most digits after the point, of numbers or seconds; None: as many as the type
            can have.
        item: of an array: the type of its elements.
        is_modified: it has a length or a precision.
        size: its most characters, or digits; None: as many as the type can have.
    """

    kind: str
    places: int | None = None
    item: ColumnType | None = None
    is_modified: bool = False
    size: int | None = None

    @property
    def family(self) -> str:
        """The family of the type."""
        return "array" if self.item is not None else FAMILIES.get(self.kind, "other")


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        sql_type: the type as PostgreSQL writes it.
        filled: the database fills it if a row does not name it: a default, an identity.
        computed: a row may not name it.
        deterministic: texts are equal only if their characters are.
    """

    name: str
    sql_type: str
    type: ColumnType
    nullable: bool = True
    filled: bool = False
    computed: bool = False
    deterministic: bool = True

    @property
    def equal_as(self) -> type | None:
        """The type of Python whose values are equal where the column's are; None: there is none."""
        if self.type.family == "integer":
            return int
        if self.type.kind in ("text", "varchar", "enum") and self.deterministic:
            return None if self.type.is_modified else str
        return None


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index on columns alone, of all rows.

    Args:
        valid: it is complete.
        immediate: it is not deferrable.
        one_null: two rows with NULL are equal.
    """

    name: str
    columns: frozenset[str]
    valid: bool = True
    immediate: bool = True
    one_null: bool = False


@dataclass(frozen=True, slots=True)
class TableShape:
    """An existing table.

    Args:
        name: as the topology writes it, with a schema before a dot if it has one.
        columns: by name, in their order.
        has_policies: row-level security applies to this role.
        has_trigger: a trigger may fill columns before a row is inserted.
        other_kind: what it is if it is no table.
    """

    name: str
    columns: dict[str, Column]
    unique: tuple[UniqueIndex, ...] = ()
    has_policies: bool = False
    has_trigger: bool = False
    other_kind: str | None = None

    @property
    def writable(self) -> frozenset[str]:
        """Names of the columns that a row may name."""
        return frozenset(name for name, column in self.columns.items() if not column.computed)

    def has_one_null(self, keys: Sequence[str]) -> bool:
        """Return whether two rows with NULL in one of these keys are equal."""
        wanted = frozenset(keys)
        return any(
            index.one_null and index.valid for index in self.unique if index.columns == wanted
        )

    @property
    def keys(self) -> frozenset[str]:
        """Names of the columns with a unique index."""
        return frozenset(name for index in self.unique for name in index.columns)


def identifier(table: str) -> sql.Identifier:
    """Return the name of a table for a statement."""
    return sql.Identifier(*relation_parts(table))


def quoted(table: str) -> str:
    """Return the name of a table as a user may paste it into a statement."""
    return ".".join(map(quoted_column, relation_parts(table)))


def quoted_column(name: str) -> str:
    """Return the name of a column as a user may paste it into a statement."""
    return _quote(name)


def read_shape(connection: Connection[Any], name: str) -> TableShape | None:
    """Return a table's definition; None: it does not exist."""
    table = identifier(name).as_string()
    relation = shape_queries.relation(connection, table=table)
    if relation is None:
        return None
    kind, has_policies, has_trigger = relation
    columns = [_column(*row) for row in shape_queries.columns(connection, table=table)]
    indexes = [
        UniqueIndex(index, frozenset(names), *facts)
        for index, names, *facts in shape_queries.unique_indexes(connection, table=table)
    ]
    return TableShape(
        name,
        {column.name: column for column in columns},
        tuple(indexes),
        has_policies,
        has_trigger,
        None if kind in _TABLES else _KINDS.get(kind, "no table"),
    )


def _column(
    name: str, declared: str, written: str, kind: str, item: str | None, *facts: bool
) -> Column:
    modifiers = _MODIFIERS.search(written)
    places = _places(item or kind, written, modifiers)
    is_sized = modifiers is not None and (item or kind) in ("numeric", "varchar")
    size = int(modifiers[1]) if modifiers is not None and is_sized else None
    own = ColumnType(item or kind, places, None, modifiers is not None, size)
    return Column(name, declared, ColumnType(kind, None, own) if item else own, *facts)


def _places(kind: str, written: str, modifiers: re.Match[str] | None) -> int | None:
    if kind == "interval" and _FIELDS.match(written):
        return -1
    if modifiers is None:
        return None
    if kind == "numeric":
        return int(modifiers[2])
    is_time = kind in ("time", "timetz", "timestamp", "timestamptz", "interval")
    return int(modifiers[1]) if is_time and int(modifiers[1]) < MICROSECONDS else None
