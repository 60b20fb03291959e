"""Columns for a model's fields: none that would change or refuse what it is given."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AwareDatetime, BaseModel, Field, NaiveDatetime
from sqlalchemy.dialects import postgresql as pg

from eosframework.postgres.tables.columns import columns_of, misfit, wanted_for
from eosframework.postgres.tables.table_shapes import Column


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


def column(type_: Any, *, nullable: bool = True, computed: bool = False) -> Column:
    return Column("c", type_, nullable, False, computed)


@pytest.mark.parametrize(
    ("annotation", "type_", "fits"),
    [
        (int, pg.INTEGER(), True),
        (int, pg.NUMERIC(), True),
        (int, pg.REAL(), False),
        (int, pg.BOOLEAN(), False),
        (float, pg.REAL(), False),
        (float, pg.INTEGER(), False),
        (Decimal, pg.DOUBLE_PRECISION(), False),
        (Decimal, pg.INTEGER(), False),
        (str, pg.VARCHAR(3), True),
        (str, pg.UUID(), True),
        (str, pg.INET(), True),
        (str, pg.INTEGER(), False),
        (str, pg.BYTEA(), False),
        (bytes, pg.TEXT(), False),
        (datetime, pg.DATE(), False),
        (AwareDatetime, pg.TIMESTAMP(), False),
        (list[int], pg.ARRAY(pg.INTEGER()), True),
        (list[str], pg.ARRAY(pg.INTEGER()), False),
        (list[str], pg.JSONB(), True),
        (list[bytes], pg.JSONB(), False),
        (dict[str, int], pg.TEXT(), False),
        (Any, pg.INTEGER(), True),
    ],
)
def test_a_column_that_would_change_or_refuse_values_is_named(
    annotation: Any, type_: Any, fits: bool
) -> None:
    wanted = wanted_for(annotation)
    assert wanted is not None
    why = misfit("c", wanted, column(type_))
    assert (why is None) is fits
    assert fits or "column c is" in (why or "")


def test_a_column_that_takes_no_null_does_not_fit_a_field_that_may_be_none() -> None:
    wanted = wanted_for(int | None)
    assert wanted is not None
    assert "NOT NULL" in (misfit("c", wanted, column(pg.BIGINT(), nullable=False)) or "")
    assert misfit("c", wanted, column(pg.BIGINT())) is None


def test_a_computed_column_takes_no_value() -> None:
    wanted = wanted_for(int)
    assert wanted is not None
    assert "computed" in (misfit("c", wanted, column(pg.BIGINT(), computed=True)) or "")
