"""Tables of a topology: planned from its models, compared, and created where missing.

Columns and tables are added; nothing is dropped, narrowed or constrained further, since other
programs may write to these tables as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column as SqlColumn
from sqlalchemy import Connection, UniqueConstraint
from sqlalchemy.schema import CreateSchema

from eosframework.postgres.connection import Database
from eosframework.postgres.error_classes import translating
from eosframework.postgres.grants import TABLE_WRITER_GRANTS, require_grants
from eosframework.postgres.migration import SCHEMA, driver, locked, migrate, pending
from eosframework.postgres.queries import load_queries
from eosframework.postgres.tables.columns import ModelColumns, Wanted, columns_of, misfit
from eosframework.postgres.tables.table_shapes import (
    TableShape,
    identifier,
    quoted,
    quoted_column,
    read_shape,
)
from eosframework.topology.graph.graph import SinkTable, TableMode, TableSink
from eosframework.topology.spec.topology_spec import relation_parts

positions: Any = load_queries("table_positions.sql")

PRIVILEGES = {
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
    wanted = dict.fromkeys(privilege for sink in sinks for privilege in PRIVILEGES[sink.mode])
    rows = positions.missing_privileges(
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
