"""The form in which a column of Spark's rows goes to its column of the table.

The stage has each value as PostgreSQL reads it: times as texts, what goes to a JSON column as JSON,
in a struct so that attempts recognize it. What types alone decide is refused before any row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eosframework.spark import values

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from eosframework.postgres.tables.table_shapes import Column as TableColumn
    from eosframework.postgres.tables.table_shapes import ColumnType

JSON_MEMBER = "json"
"""Only member of the struct that a JSON column has in the stage."""

_FITS = {
    "boolean": {"boolean"},
    "byte": {"integer", "numeric", "real", "double", "text"},
    "short": {"integer", "numeric", "real", "double", "text"},
    "integer": {"integer", "numeric", "double", "text"},
    "long": {"integer", "numeric", "text"},
    "float": {"real", "double", "numeric", "text"},
    "double": {"double", "numeric", "text"},
    "decimal": {"numeric", "text"},
    "binary": {"bytea"},
    "date": {"date", "timestamp", "text"},
    "timestamp": {"timestamptz", "timestamp", "text"},
    "timestamp_ntz": {"timestamp", "timestamptz", "text"},
    "time": {"time", "text"},
    "daytimeinterval": {"interval"},
}
"""Families of columns that keep every value of a type, or refuse the row."""

_MOST_PLACES = 1000
"""More digits after the point than any column has: floats and times may have so many."""


def form_of(column: Column, kind: Any, target: TableColumn) -> Column:
    """Return a column as its column of the table takes it; call `misfit` before.

    Args:
        column: of the rows.
        kind: its type.
        target: the column of the table.
    """
    from pyspark.sql import functions as f

    if _is_json(target):
        return f.struct(values.json(column, kind).alias(JSON_MEMBER))
    if kind.typeName() == "array" and (item := target.type.item) is not None:
        return f.transform(column, lambda one: _scalar(one, kind.elementType, item))
    return _scalar(column, kind, target.type)


def _scalar(column: Column, kind: DataType, type_: ColumnType) -> Column:
    from pyspark.sql import functions as f

    made = values.plain(column, kind)
    match kind.typeName(), type_.family:
        case "timestamp", "timestamp":
            return f.substring_index(made, "Z", 1)
        case "timestamp_ntz", "timestamptz":
            return f.concat(made, f.lit("Z"))
        case "void", _:
            return made.cast("string")  # Parquet has no void.
        case _:
            return made


def _is_json(target: TableColumn) -> bool:
    return target.type.family == "json"


def refusals_of(column: Column, kind: DataType, target: TableColumn) -> list[tuple[Column, str]]:
    """Return what makes a row inexact, as conditions and reasons; arguments as `form_of`."""
    refusals = values.json_refusals if _is_json(target) else values.text_refusals
    return refusals(column, kind, target.name)


def misfit(kind: DataType, target: TableColumn) -> str | None:
    """Return why a column of the table does not keep every value of a type; None: it does."""
    why = values.unwritable_as_json(kind) if _is_json(target) else values.unwritable(kind)
    if why is not None:
        return why
    if target.computed:
        return f"column {target.name} is computed by the database, so no row may name it"
    if _is_json(target) or _keeps(kind, target.type):
        return None
    return (
        f"it is {kind.simpleString()}, and column {target.name} is {target.sql_type}, which does "
        f"not keep every value of it; cast it, or change the table"
    )


def _keeps(kind: Any, type_: ColumnType) -> bool:
    name = kind.typeName()
    if name == "void":
        return True
    if name in values.TEXTS:  # The database reads the text of any type, or refuses the row.
        return type_.family != "bytea"
    if name == "array":
        item = kind.elementType
        is_plain = item.typeName() not in values.NESTED
        return type_.item is not None and is_plain and _keeps(item, type_.item)
    if name == "decimal" and kind.scale == 0 and type_.family == "integer":
        return True
    return type_.family in _FITS.get(name, ()) and not _rounds(kind, type_)


def _rounds(kind: Any, type_: ColumnType) -> bool:
    """Return whether a column may have fewer digits after the point than a value."""
    if type_.places is None or kind.typeName() == "date":
        return False
    if kind.typeName() in values.INTEGERS:
        return type_.places < 0
    return getattr(kind, "scale", _MOST_PLACES) > type_.places
