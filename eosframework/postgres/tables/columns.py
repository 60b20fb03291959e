"""Columns for the fields of a pydantic model: their types, and checks of existing columns.

A column fits a field if every value of it is read back unchanged. Failures of single values (a
number too large, a text too long) are left to the database, which rejects that row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, NaiveDatetime
from sqlalchemy.dialects import postgresql as pg

from eosframework.postgres.tables.table_shapes import Column

FAMILIES: Mapping[type[Any], str] = {
    pg.BOOLEAN: "boolean",
    pg.SMALLINT: "integer",
    pg.INTEGER: "integer",
    pg.BIGINT: "integer",
    pg.DOUBLE_PRECISION: "double",
    pg.REAL: "real",
    pg.NUMERIC: "numeric",
    pg.TEXT: "text",
    pg.VARCHAR: "text",
    pg.CHAR: "text",
    pg.CITEXT: "text",
    pg.ENUM: "enum",
    pg.BYTEA: "bytea",
    pg.DATE: "date",
    pg.TIME: "time",
    pg.INTERVAL: "interval",
    pg.UUID: "uuid",
    pg.JSON: "json",
    pg.JSONB: "json",
    pg.ARRAY: "array",
}
"""Families of reflected types. Domains, ranges and types of extensions are "other"."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requirements of a field on its column.

    Args:
        type: of the column that is created for it.
        fits: families of columns that hold its values.
        items: of an array: the requirements of its elements.
        nullable: it may be None.
    """

    type: Any
    fits: frozenset[str]
    items: Wanted | None = None
    nullable: bool = False

    @property
    def sql_type(self) -> str:
        """The type as PostgreSQL writes it."""
        return self.type.compile(dialect=pg.dialect())


def _wanted(type_: Any, *fits: str) -> Wanted:
    return Wanted(type_, frozenset(fits))


_ANY = Wanted(pg.JSONB(), frozenset({*FAMILIES.values(), "timestamp", "timestamptz", "other"}))
_DOCUMENT = _wanted(pg.JSONB(), "json")
_TEXT = _wanted(
    pg.TEXT(),
    *("text", "enum", "uuid", "date", "time", "timestamp", "timestamptz", "interval", "numeric"),
    *("json", "other"),
)
_MOMENT = pg.TIMESTAMP(timezone=True)
_PLAIN: Mapping[Any, Wanted] = {
    bool: _wanted(pg.BOOLEAN(), "boolean", "json"),
    int: _wanted(pg.BIGINT(), "integer", "numeric", "double", "text", "json"),
    float: _wanted(pg.DOUBLE_PRECISION(), "double", "numeric", "text", "json"),
    Decimal: _wanted(pg.NUMERIC(), "numeric", "text"),
    str: _TEXT,
    bytes: _wanted(pg.BYTEA(), "bytea"),
    datetime: _wanted(_MOMENT, "timestamptz", "timestamp", "text", "json"),
    AwareDatetime: _wanted(_MOMENT, "timestamptz", "text", "json"),
    NaiveDatetime: _wanted(pg.TIMESTAMP(), "timestamp", "text", "json"),
    date: _wanted(pg.DATE(), "date", "timestamp", "text", "json"),
    time: _wanted(pg.TIME(), "time", "text", "json"),
    timedelta: _wanted(pg.INTERVAL(), "interval"),
    UUID: _wanted(pg.UUID(), "uuid", "text", "json"),
    Any: _ANY,
    object: _ANY,
    dict: _DOCUMENT,
    tuple: _DOCUMENT,
    list: _DOCUMENT,
}


@dataclass(frozen=True, slots=True)
class ModelColumns:
    """The columns of a model.

    Args:
        wanted: by name, in the order of the fields.
        unknown: fields whose type has no equivalent in PostgreSQL, with that type's name.
    """

    wanted: dict[str, Wanted] = field(default_factory=dict[str, Wanted])
    unknown: dict[str, str] = field(default_factory=dict[str, str])


def columns_of(model: type[BaseModel]) -> ModelColumns:
    """Return the columns for a model's fields."""
    columns = ModelColumns()
    for name, declared in model.model_fields.items():
        wanted = wanted_for(declared.annotation)
        if wanted is None:
            columns.unknown[name] = _name(declared.annotation)
        else:
            columns.wanted[name] = wanted
    return columns


def wanted_for(annotation: Any) -> Wanted | None:
    """Return the requirements of a type; None: it cannot be written to any column."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated or hasattr(annotation, "__supertype__"):
        return wanted_for(arguments[0] if arguments else annotation.__supertype__)
    if origin in (Union, UnionType):
        return _either(arguments)
    if origin is Literal:
        return _either(tuple({type(value) for value in arguments}))
    if origin is list or origin is Sequence:
        return _array(arguments[0])
    return _of_class(origin or annotation)


def holds(wanted: Wanted, type_: Any) -> bool:
    """Return whether a column of a reflected type holds every value."""
    if wanted.items is not None and family(type_) == "array":
        return holds(wanted.items, type_.item_type)
    return family(type_) in wanted.fits


def family(type_: Any) -> str:
    """Return the family of a reflected type."""
    if isinstance(type_, pg.TIMESTAMP):
        return "timestamptz" if type_.timezone else "timestamp"
    if isinstance(type_, pg.DOMAIN):
        return family(type_.data_type)
    ancestors = (FAMILIES.get(kind) for kind in type(type_).__mro__)
    return next((found for found in ancestors if found), "other")


def misfit(name: str, wanted: Wanted, column: Column) -> str | None:
    """Return why a column does not hold a field; None: it does."""
    if column.computed:
        return f"column {name} is computed by the database, so no row may name it"
    if not holds(wanted, column.type):
        return (
            f"column {name} is {column.sql_type}, which does not hold every value of the model's "
            f"field (it needs {wanted.sql_type})"
        )
    if wanted.nullable and wanted is not _ANY and not column.nullable:
        return f"column {name} is NOT NULL, and the model's field may be None"
    return None


def _either(choices: Sequence[Any]) -> Wanted | None:
    """Return the requirements of a union of types: a type they share, or JSON."""
    wanted = [wanted_for(choice) for choice in choices if choice is not NoneType]
    found = [choice for choice in wanted if choice is not None]
    if len(found) < len(wanted):
        return None
    fits = frozenset[str].intersection(*(choice.fits for choice in found)) if found else _ANY.fits
    alike = len({choice.sql_type for choice in found}) == 1
    if not alike and "json" not in fits:
        return None
    return Wanted(
        found[0].type if alike else pg.JSONB(),
        fits,
        found[0].items if alike else None,
        nullable=NoneType in choices,
    )


def _array(item: Any) -> Wanted:
    items = wanted_for(item)
    if items is None or items.items is not None or family(items.type) == "json":
        return _DOCUMENT
    fits = frozenset({"json"}) & items.fits
    return Wanted(pg.ARRAY(items.type), fits, items)


def _of_class(kind: Any) -> Wanted | None:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if not isinstance(kind, type):
        return None
    if is_typeddict(kind) or is_dataclass(kind) or issubclass(kind, BaseModel | Mapping):
        return _DOCUMENT
    if issubclass(kind, Enum) and not issubclass(kind, str | int):
        return None  # psycopg writes a member's name, not its value
    for known in (bool, int, float, Decimal, str, bytes, UUID):
        if issubclass(kind, known):
            return _PLAIN[known]
    return None


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)
