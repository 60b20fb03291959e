"""Tables of a topology: planned from its models, compared, and created where missing.

Columns and tables are added; nothing is dropped, narrowed or constrained further, since other
programs may write to these tables as well.

Columns for the fields of a pydantic model: their types, and checks of existing columns.
A column fits a field if every value of it is read back unchanged. Failures of single values (a
number too large, a text too long) are left to the database, which rejects that row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict
from uuid import UUID

from alembic.migration import MigrationContext
from alembic.operations import Operations
from pydantic import AwareDatetime, BaseModel, NaiveDatetime
from pydantic.fields import FieldInfo
from sqlalchemy import Column as SqlColumn
from sqlalchemy import Connection, UniqueConstraint
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.schema import CreateSchema

from eosframework.errors import TopologyError
from eosframework.postgres.database.connection import Database, load_queries
from eosframework.postgres.database.error_classes import translating
from eosframework.postgres.database.grants import TABLE_WRITER_GRANTS, require_grants
from eosframework.postgres.database.migration import SCHEMA, driver, locked, migrate, pending
from eosframework.postgres.database.tables.table_shapes import (
    FAMILIES,
    Column,
    ColumnType,
    TableShape,
    identifier,
    quoted,
    quoted_column,
    read_shape,
)
from eosframework.serialization.serdes import serde_of
from eosframework.topology.graph.graph import SinkTable, TableMode, TableSink
from eosframework.topology.spec.topology_spec import relation_parts


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


def _holds(wanted: Wanted, type_: ColumnType) -> bool:
    """Return whether a column of a type holds every value."""
    if wanted.items is not None and type_.item is not None:
        return _holds(wanted.items, type_.item)
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
    if not _holds(wanted, column.type):
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


_positions: Any = load_queries("table_positions.sql")

_PRIVILEGES = {
    TableMode.APPEND: ("INSERT",),
    TableMode.UPSERT: ("INSERT", "SELECT", "UPDATE"),
    TableMode.UPSERT_DELETE: ("INSERT", "SELECT", "UPDATE", "DELETE"),
}
"""Privileges of a table writer, by mode."""


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table as it is, or as `apply` would create it.

    Args:
        missing: columns that it lacks, with their types; all of them if there is no table.
        keys: sets of columns that are unique in a created table.
        problems: obstacles that the user has to fix, since `apply` does not.
    """

    name: str
    exists: bool
    missing: dict[str, Wanted]
    keys: tuple[tuple[str, ...], ...]
    problems: tuple[str, ...]

    @property
    def create(self) -> bool:
        """True if `apply` creates it."""
        return not self.exists and not self.problems

    @property
    def described(self) -> str:
        """The missing columns as PostgreSQL writes them."""
        return ", ".join(f"{name} {wanted.sql_type}" for name, wanted in self.missing.items())


@dataclass(frozen=True, slots=True)
class TablesPlan:
    """Changes that the tables of a topology need.

    Args:
        database: where they are, without secrets.
        revisions: missing ones of eosframework's own schema there.
    """

    database: str
    revisions: tuple[str, ...]
    tables: tuple[PlannedTable, ...]

    def as_data(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {
            "name": self.database,
            "revisions": list(self.revisions),
            "tables": [
                {
                    "name": table.name,
                    "exists": table.exists,
                    "create": table.create,
                    "missing": {name: of.sql_type for name, of in table.missing.items()},
                    "problems": list(table.problems),
                }
                for table in self.tables
            ],
        }

    @property
    def problems(self) -> list[str]:
        """Obstacles that `apply` cannot fix."""
        return [problem for table in self.tables for problem in table.problems]

    @property
    def lacking(self) -> list[str]:
        """Objects that `apply` creates."""
        schema = [f"schema {SCHEMA} (revision {name})" for name in self.revisions]
        tables = [f"table {t.name} ({t.described})" for t in self.tables if t.create]
        added = [
            f"table {t.name}, columns {t.described}" for t in self.tables if t.exists and t.missing
        ]
        return [*schema, *tables, *added]


def plan_tables(database: Database, table_sinks: Sequence[TableSink]) -> TablesPlan:
    """Return the changes that tables and schema need. Changes nothing.

    Raises:
        StartRefused: the schema was made by a newer eosframework, or the role may not use it.
        DatabaseUnavailable: the database is unavailable.
    """
    require_grants(database, TABLE_WRITER_GRANTS)
    revisions = tuple(pending(database))
    doing = f"read the tables of {database.display}"
    with translating(doing), database.engine().connect() as connection:
        return TablesPlan(database.display, revisions, _planned(connection, table_sinks))


def apply_tables(database: Database, table_sinks: Sequence[TableSink]) -> list[str]:
    """Create the missing schema, tables and columns, and return their descriptions.

    Raises:
        StartRefused: the schema was made by a newer eosframework.
        DatabaseUnavailable: the database is unavailable; nothing was created, or the answer is
            lost.
        DatabaseRefused: the user lacks a privilege; names it.
    """
    made = [f"schema {SCHEMA} (revision {name})" for name in migrate(database)]
    doing = f"create tables in {database.display}"
    with translating(doing), locked(database) as connection:
        plan = TablesPlan(database.display, (), _planned(connection, table_sinks))
        for table in plan.tables:
            _make(connection, table)
    return [*made, *plan.lacking]


def _planned(connection: Connection, table_sinks: Sequence[TableSink]) -> tuple[PlannedTable, ...]:
    sinks: dict[str, list[SinkTable]] = {}
    for sink in (sink for table_sink in table_sinks for sink in table_sink.tables):
        sinks.setdefault(sink.table, []).append(sink)
    plans = [
        _plan_table(name, sinks[name], read_shape(driver(connection), name))
        for name in sorted(sinks)
    ]
    return tuple(
        replace(plan, problems=(*plan.problems, *_denied(connection, plan, sinks[plan.name])))
        for plan in plans
    )


def _denied(
    connection: Connection, plan: PlannedTable, sinks: Sequence[SinkTable]
) -> Iterator[str]:
    """Yield missing privileges that the first row would need."""
    if not plan.exists:
        return
    wanted = dict.fromkeys(privilege for sink in sinks for privilege in _PRIVILEGES[sink.mode])
    rows = _positions.missing_privileges(
        driver(connection), table_name=identifier(plan.name).as_string(), wanted=list(wanted)
    )
    if missing := ", ".join(name for (name,) in rows):
        yield (
            f"table {plan.name}: this user lacks {missing}; as its owner, run: "
            f"GRANT {missing} ON {quoted(plan.name)} TO …"
        )


def _plan_table(name: str, sinks: Sequence[SinkTable], shape: TableShape | None) -> PlannedTable:
    models = [columns_of(sink.model) for sink in sinks if sink.model is not None]
    wanted = {column: of for model in reversed(models) for column, of in model.wanted.items()}
    existing = {} if shape is None else shape.columns
    keys = dict.fromkeys(sink.keys for sink in sinks if sink.mode is not TableMode.APPEND)
    missing = {column: of for column, of in wanted.items() if column not in existing}
    problems = [*_unknown(name, models)]
    if shape is not None and shape.other_kind is not None:
        missing, problems = {}, [f"{name} is {shape.other_kind}; name a table, to which rows go"]
    elif shape is None:
        problems += _unmakeable(name, sinks, wanted)
    else:
        problems += _unfit(shape, sinks, wanted)
    return PlannedTable(
        name=name,
        exists=shape is not None,
        missing=missing,
        keys=tuple(keys),
        problems=tuple(dict.fromkeys(problems)),
    )


def _unknown(name: str, models: Sequence[ModelColumns]) -> Iterator[str]:
    for model in models:
        for column, kind in model.unknown.items():
            yield (
                f"table {name}: the model's field {column} is of type {kind}, which has no form in "
                f"PostgreSQL; give it another type"
            )


def _unmakeable(name: str, sinks: Sequence[SinkTable], wanted: dict[str, Wanted]) -> Iterator[str]:
    """Yield the reasons why a missing table cannot be created."""
    if not wanted:
        yield (
            f"table {name} does not exist, and nothing says what its columns are: create it, or "
            f"name a pydantic model with its columns (model: …)"
        )
        return
    for key in dict.fromkeys(key for sink in sinks for key in sink.keys):
        if key not in wanted:
            yield f"table {name}: key {key} is no field of the model; correct keys or the model"
        elif wanted[key].nullable:
            yield f"table {name}: key {key} may be None, which no key column takes; require it"


def _unfit(
    shape: TableShape, sinks: Sequence[SinkTable], wanted: dict[str, Wanted]
) -> Iterator[str]:
    """Yield the reasons why an existing table does not accept the rows."""
    for column, of in wanted.items():
        found = shape.columns.get(column)
        if found is not None and shape.has_trigger:
            found = replace(found, nullable=True)  # The trigger may fill it.
        if found is not None and (why := misfit(column, of, found)):
            yield f"table {shape.name}: {why}; change the column or the model"
    for sink in sinks:
        yield from _without_unique(shape, sink, wanted)
        if sink.model is None:
            continue
        for column in shape.columns.values():
            filled = column.filled or column.computed or shape.has_trigger
            required = not (column.nullable or filled)
            if required and column.name not in sink.model.model_fields:
                yield (
                    f"table {shape.name}: column {column.name} is NOT NULL without a default, and "
                    f"model {sink.model.__name__} has no such field; add one, or a default"
                )


def _without_unique(shape: TableShape, sink: SinkTable, wanted: dict[str, Wanted]) -> Iterator[str]:
    if not sink.keys:
        return
    columns = ", ".join(map(quoted_column, sink.keys))
    for key in sink.keys:
        if key not in shape.columns and key not in wanted:
            yield f"table {shape.name} has no column {key}, which is a key; correct keys"
            return
    fitting = [index for index in shape.unique if index.columns == frozenset(sink.keys)]
    valid = [index for index in fitting if index.valid]
    table = quoted(shape.name)
    if not fitting:
        yield (
            f"table {shape.name} has no unique constraint on ({columns}), so no row could replace "
            f"another: ALTER TABLE {table} ADD UNIQUE ({columns})"
        )
    elif not valid:
        index = ".".join(map(quoted_column, (*relation_parts(shape.name)[:-1], fitting[0].name)))
        yield (
            f"table {shape.name}: unique index {fitting[0].name} on ({columns}) is invalid, since "
            f"its creation has failed or has not ended: REINDEX INDEX {index}"
        )
    for index in valid:
        if not index.immediate:
            yield (
                f"table {shape.name}: unique constraint {index.name} on ({columns}) is deferrable, "
                f"by which no row may replace another: ALTER TABLE {table} DROP CONSTRAINT "
                f"{quoted_column(index.name)}, ADD UNIQUE ({columns})"
            )
    if valid and not shape.has_one_null(sink.keys):
        yield from _nullable_keys(shape, sink)


def _nullable_keys(shape: TableShape, sink: SinkTable) -> Iterator[str]:
    """Yield the keys that may be NULL, which a unique constraint takes for different."""
    fields = {} if sink.model is None else columns_of(sink.model).wanted
    for key in sink.keys:
        column = shape.columns.get(key)
        field = fields.get(key)
        if column is not None and column.nullable and (field is None or field.nullable):
            yield (
                f"table {shape.name}: key {key} may be NULL, and no row with NULL replaces "
                f"another; let neither the column nor the field be NULL, or, from PostgreSQL 15 "
                f"on: ALTER TABLE {quoted(shape.name)} ADD UNIQUE NULLS NOT DISTINCT "
                f"({', '.join(map(quoted_column, sink.keys))})"
            )


def _make(connection: Connection, planned: PlannedTable) -> None:
    *schemas, name = relation_parts(planned.name)
    schema = schemas[0] if schemas else None
    operations = Operations(MigrationContext.configure(connection))
    if planned.create:
        if schema:
            connection.execute(CreateSchema(schema, if_not_exists=True))
        primary = planned.keys[0] if planned.keys else ()
        columns = [
            SqlColumn(column, of.type, nullable=of.nullable, primary_key=column in primary)
            for column, of in planned.missing.items()
        ]
        unique = [UniqueConstraint(*keys) for keys in planned.keys[1:]]
        operations.create_table(name, *columns, *unique, schema=schema)
    elif planned.exists:
        # Nullable, since existing rows have no value for it.
        for column, of in planned.missing.items():
            operations.add_column(name, SqlColumn(column, of.type), schema=schema)
