"""Columns for a model's fields: none that would change or refuse what it is given."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AwareDatetime, BaseModel, Field, NaiveDatetime

from eosframework.postgres.database.tables.table_schema import columns_of, misfit, wanted_for
from eosframework.postgres.database.tables.table_shapes import Column, ColumnType


class Colour(StrEnum):
    RED = "red"


class Plain(Enum):
    ONE = "one"


class Inner(BaseModel):
    n: int


@pytest.mark.parametrize(
    ("annotation", "expected", "nullable"),
    [
        (int, "BIGINT", False),
        (bool, "BOOLEAN", False),
        (float, "DOUBLE PRECISION", False),
        (Decimal, "NUMERIC", False),
        (str | None, "TEXT", True),
        (Annotated[int, Field(gt=0)] | None, "BIGINT", True),  # pyright: ignore[reportOperatorIssue]
        (bytes, "BYTEA", False),
        (datetime, "TIMESTAMP WITH TIME ZONE", False),
        (AwareDatetime, "TIMESTAMP WITH TIME ZONE", False),
        (NaiveDatetime, "TIMESTAMP WITHOUT TIME ZONE", False),
        (date, "DATE", False),
        (time, "TIME WITHOUT TIME ZONE", False),
        (timedelta, "INTERVAL", False),
        (UUID, "UUID", False),
        (Colour, "TEXT", False),
        (Literal["a", "b"], "TEXT", False),
        (list[str], "TEXT[]", False),
        (list[UUID], "UUID[]", False),
        (list[dict[str, Any]], "JSONB", False),
        (list[list[int]], "JSONB", False),
        (dict[str, int], "JSONB", False),
        (Inner, "JSONB", False),
        (int | str, "JSONB", False),
        (Any, "JSONB", False),
    ],
)
def test_every_usual_type_has_a_column_of_its_own(
    annotation: Any, expected: str, nullable: bool
) -> None:
    wanted = wanted_for(annotation)
    assert wanted is not None
    assert (wanted.sql_type, wanted.nullable) == (expected, nullable)


@pytest.mark.parametrize("annotation", [Plain, set[int], complex, Decimal | bytes])
def test_a_type_without_a_form_in_postgresql_is_named(annotation: Any) -> None:
    assert wanted_for(annotation) is None


def test_all_fields_of_a_model_are_found() -> None:
    class Row(BaseModel):
        id: int
        what: Plain

    columns = columns_of(Row)
    assert list(columns.wanted) == ["id"]
    assert columns.unknown == {"what": "Plain"}


def column(type_: str, *, nullable: bool = True, computed: bool = False) -> Column:
    """A column of a type: int4, _int4 for an array, numeric.2 with digits after the point."""
    name, _, places = type_.lstrip("_").partition(".")
    own = ColumnType(name, int(places) if places else None, None, bool(places))
    kind = ColumnType(type_, None, own) if type_.startswith("_") else own
    return Column("c", type_, kind, nullable, computed=computed)


Cents = Annotated[Decimal, Field(decimal_places=2)]


@pytest.mark.parametrize(
    ("annotation", "type_", "fits"),
    [
        (int, "int4", True),
        (int, "numeric", True),
        (int, "numeric.0", True),
        (int, "numeric.-2", False),
        (int, "float8", False),
        (int, "float4", False),
        (int, "bool", False),
        (float, "float4", False),
        (float, "int4", False),
        (float, "numeric.2", False),
        (Decimal, "numeric", True),
        (Decimal, "numeric.2", False),
        (Cents, "numeric.2", True),
        (Cents | None, "numeric.1", False),
        (Decimal, "float8", False),
        (Decimal, "int4", False),
        (str, "varchar", True),
        (str, "uuid", True),
        (str, "inet", True),
        (str, "numeric.2", False),
        (str, "timestamptz.0", False),
        (str, "int4", False),
        (str, "bytea", False),
        (bytes, "text", False),
        (datetime, "date", False),
        (datetime, "timestamptz.3", False),
        (time, "time.0", False),
        (timedelta, "interval.0", False),
        (timedelta, "interval.-1", False),
        (date, "timestamp.0", True),
        (AwareDatetime, "timestamp", False),
        (list[int], "_int4", True),
        (list[Decimal], "_numeric.2", False),
        (list[Cents], "_numeric.2", True),
        (list[str], "_int4", False),
        (list[str], "jsonb", True),
        (list[bytes], "jsonb", False),
        (dict[str, int], "text", False),
        (Any, "int4", True),
        (Any, "numeric.2", True),
    ],
)
def test_a_column_that_would_change_or_refuse_values_is_named(
    annotation: Any, type_: str, *, fits: bool
) -> None:
    wanted = wanted_for(annotation)
    assert wanted is not None
    why = misfit("c", wanted, column(type_))
    assert (why is None) is fits
    assert fits or "column c is" in (why or "")


def test_a_decimal_fits_by_the_places_that_its_field_declares() -> None:
    class Row(BaseModel):
        amount: Decimal = Field(decimal_places=2)

    wanted = columns_of(Row).wanted["amount"]
    assert misfit("c", wanted, column("numeric.2")) is None
    assert "decimal_places=1" in (misfit("c", wanted, column("numeric.1")) or "")


def test_a_column_that_takes_no_null_does_not_fit_a_field_that_may_be_none() -> None:
    wanted = wanted_for(int | None)
    assert wanted is not None
    assert "NOT NULL" in (misfit("c", wanted, column("int8", nullable=False)) or "")
    assert misfit("c", wanted, column("int8")) is None


def test_a_computed_column_takes_no_value() -> None:
    wanted = wanted_for(int)
    assert wanted is not None
    assert "computed" in (misfit("c", wanted, column("int8", computed=True)) or "")
