"""Columns for the fields of a pydantic model: their types, and checks of existing columns.

A column fits a field if every value of it is read back unchanged. Failures of single values (a
number too large, a text too long) are left to the database, which rejects that row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, NaiveDatetime
from pydantic.fields import FieldInfo
from sqlalchemy.dialects import postgresql as pg

from eosframework.errors import TopologyError
from eosframework.postgres.tables.table_shapes import FAMILIES, Column, ColumnType
from eosframework.serialization.serdes import serde_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requirements of a field on its column.

    Args:
        type: of the column that is created for it.
        fits: families of columns that hold its values.
        items: of an array: the requirements of its elements.
        nullable: it may be None.
        places: the most digits after the point, of numbers or seconds; None: any number.
    """

    type: Any
    fits: frozenset[str]
    items: Wanted | None = None
    nullable: bool = False
    places: int | None = None

    @property
    def sql_type(self) -> str:
        """The type as PostgreSQL writes it."""
        return self.type.compile(dialect=pg.dialect())


def _wanted(type_: Any, *fits: str, places: int | None = None) -> Wanted:
    return Wanted(type_, frozenset(fits), places=places)


_ANY = Wanted(pg.JSONB(), frozenset({*FAMILIES.values(), "array", "other"}))
_DOCUMENT = _wanted(pg.JSONB(), "json")
_TEXT = _wanted(
    pg.TEXT(),
    *("text", "enum", "uuid", "date", "time", "timestamp", "timestamptz", "interval", "numeric"),
    *("json", "other"),
)
_MOMENT = pg.TIMESTAMP(timezone=True)
_PLAIN: Mapping[Any, Wanted] = {
    bool: _wanted(pg.BOOLEAN(), "boolean", "json"),
    int: _wanted(pg.BIGINT(), "integer", "numeric", "text", "json", places=0),
    float: _wanted(pg.DOUBLE_PRECISION(), "double", "numeric", "text", "json"),
    Decimal: _wanted(pg.NUMERIC(), "numeric", "text"),
    str: _TEXT,
    bytes: _wanted(pg.BYTEA(), "bytea"),
    datetime: _wanted(_MOMENT, "timestamptz", "timestamp", "text", "json"),
    AwareDatetime: _wanted(_MOMENT, "timestamptz", "text", "json"),
    NaiveDatetime: _wanted(pg.TIMESTAMP(), "timestamp", "text", "json"),
    date: _wanted(pg.DATE(), "date", "timestamp", "text", "json", places=0),
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
        wanted = _limited(wanted_for(declared.annotation), declared.metadata)
        if wanted is None or not _is_written(wanted, declared):
            columns.unknown[name] = _name(declared.annotation)
        else:
            columns.wanted[name] = wanted
    return columns


def _is_written(wanted: Wanted, declared: FieldInfo) -> bool:
    """Return whether a type that goes into a document has a form in JSON."""
    if not isinstance(wanted.type, pg.JSONB):
        return True
    try:
        serde_of(declared.rebuild_annotation())
    except TopologyError:
        return False
    return True


def wanted_for(annotation: Any) -> Wanted | None:
    """Return the requirements of a type; None: it cannot be written to any column."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated or hasattr(annotation, "__supertype__"):
        wanted = wanted_for(arguments[0] if arguments else annotation.__supertype__)
        return _limited(wanted, getattr(annotation, "__metadata__", ()))
    if origin in (Union, UnionType):
        return _either(arguments)
    if origin is Literal:
        return _either(tuple({type(value) for value in arguments}))
    if origin is list or origin is Sequence:
        return _array(arguments[0])
    return _of_class(origin or annotation)


def holds(wanted: Wanted, type_: ColumnType) -> bool:
    """Return whether a column of a type holds every value."""
    if wanted.items is not None and type_.item is not None:
        return holds(wanted.items, type_.item)
    return type_.family in wanted.fits and (wanted is _ANY or not _rounds(wanted, type_))


def _rounds(wanted: Wanted, type_: ColumnType) -> bool:
    """Return whether a column may have fewer digits after the point than a value."""
    return type_.places is not None and (wanted.places is None or wanted.places > type_.places)


def _limited(wanted: Wanted | None, metadata: Sequence[Any]) -> Wanted | None:
    """Return requirements with the most digits after the point that a declaration allows."""
    if wanted is None or "numeric" not in wanted.fits or wanted.places is not None:
        return wanted
    declared = [*metadata, *(each for part in metadata for each in getattr(part, "metadata", ()))]
    places = [n for part in declared if (n := getattr(part, "decimal_places", None)) is not None]
    return replace(wanted, places=min(places)) if places else wanted


def misfit(name: str, wanted: Wanted, column: Column) -> str | None:
    """Return why a column does not hold a field; None: it does."""
    if column.computed:
        return f"column {name} is computed by the database, so no row may name it"
    if not holds(wanted, column.type):
        return (
            f"column {name} is {column.sql_type}, which does not hold every value of the model's "
            f"field (it needs {wanted.sql_type}{_declared(wanted, column)})"
        )
    if wanted.nullable and wanted is not _ANY and not column.nullable:
        return f"column {name} is NOT NULL, and the model's field may be None"
    return None


def _declared(wanted: Wanted, column: Column) -> str:
    """Return how a model declares that its values fit; empty: it cannot."""
    is_decimal = isinstance(wanted.type, pg.NUMERIC) and column.type.family == "numeric"
    return f", or Field(decimal_places={column.type.places})" if is_decimal else ""


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
    places = [choice.places for choice in found]
    return Wanted(
        found[0].type if alike else pg.JSONB(),
        fits,
        found[0].items if alike else None,
        nullable=NoneType in choices,
        places=None if None in places else max(filter(None, places), default=0),
    )


def _array(item: Any) -> Wanted:
    items = wanted_for(item)
    if items is None or items.items is not None or isinstance(items.type, pg.JSONB):
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
