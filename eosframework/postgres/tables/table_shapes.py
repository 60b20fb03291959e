"""Definitions of existing tables: columns, types and unique constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import CHAR, Connection, Inspector, Integer, String, inspect
from sqlalchemy.dialects.postgresql import CITEXT, JSON, JSONB, dialect
from sqlalchemy.exc import NoSuchTableError

DIALECT = dialect()


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        type: SQLAlchemy's type.
        filled: the database fills it if a row does not name it: a default, an identity.
        computed: a row may not name it.
    """

    name: str
    type: Any
    nullable: bool
    filled: bool
    computed: bool

    @property
    def sql_type(self) -> str:
        """The type as PostgreSQL writes it."""
        return self.type.compile(dialect=DIALECT)

    @property
    def is_json(self) -> bool:
        """True if it accepts any value, as JSON."""
        return isinstance(self.type, JSON | JSONB)

    @property
    def equal_as(self) -> type | None:
        """The type of Python whose values are equal where the column's are; None: there is none."""
        if isinstance(self.type, Integer):
            return int
        is_text = isinstance(self.type, String) and not isinstance(self.type, CHAR | CITEXT)
        return str if is_text and self.type.collation is None else None


@dataclass(frozen=True, slots=True)
class TableShape:
    """An existing table.

    Args:
        name: as the topology writes it, with a schema before a dot if it has one.
        columns: by name, in their order.
        unique: sets of columns that no two rows share.
    """

    name: str
    columns: dict[str, Column]
    unique: frozenset[frozenset[str]]

    @property
    def writable(self) -> frozenset[str]:
        """Names of the columns that a row may name."""
        return frozenset(name for name, column in self.columns.items() if not column.computed)


def read_shape(connection: Connection, name: str) -> TableShape | None:
    """Return a table's definition; None: it does not exist."""
    schema, _, table = name.rpartition(".")
    inspector = inspect(connection)
    try:
        found = inspector.get_columns(table, schema or None)
    except NoSuchTableError:
        return None
    columns = {column["name"]: _column(column) for column in found}
    return TableShape(name, columns, _unique(inspector, table, schema or None))


def _column(found: Any) -> Column:
    identity = found.get("identity")
    return Column(
        name=found["name"],
        type=found["type"],
        nullable=found["nullable"],
        filled=found.get("default") is not None or identity is not None,
        computed=found.get("computed") is not None
        or (identity is not None and bool(identity.get("always"))),
    )


def _unique(inspector: Inspector, table: str, schema: str | None) -> frozenset[frozenset[str]]:
    """Return the column sets that ON CONFLICT can name: no expressions, no conditions."""
    sets: set[frozenset[str]] = set()
    if primary := inspector.get_pk_constraint(table, schema)["constrained_columns"]:
        sets.add(frozenset(primary))
    for constraint in inspector.get_unique_constraints(table, schema):
        sets.add(frozenset(constraint["column_names"]))
    for index in inspector.get_indexes(table, schema):
        partial = index.get("dialect_options", {}).get("postgresql_where")
        if index["unique"] and not partial and None not in index["column_names"]:
            sets.add(frozenset(str(name) for name in index["column_names"]))
    return frozenset(sets)
