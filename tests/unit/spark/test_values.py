"""Types of Spark: what Python reads of them, and the columns of tables that keep their values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from eosframework.postgres.database.tables.table_shapes import Column, ColumnType
from eosframework.spark.session import values
from eosframework.spark.sinks.table.columns import misfit

types: Any = pytest.importorskip("pyspark.sql.types")


def struct(**fields: Any) -> Any:
    return types.StructType([types.StructField(name, kind) for name, kind in fields.items()])


def test_python_reads_times_with_their_zone_and_structs_as_dicts() -> None:
    kind = struct(
        at=types.TimestampType(),
        local=types.TimestampNTZType(),
        days=types.MapType(types.DateType(), types.ArrayType(types.BinaryType())),
        nothing=types.NullType(),
        absent=struct(a=types.DateType()),
    )
    row = (
        "2024-03-10T02:30:00.000001Z",
        "2024-03-10T02:30:00",
        {"2024-03-10": [bytearray(b"\xff"), None]},
        None,
        None,
    )
    assert values.reader_of(kind)(row) == {
        "at": datetime(2024, 3, 10, 2, 30, 0, 1, UTC),
        "local": datetime(2024, 3, 10, 2, 30),
        "days": {date(2024, 3, 10): [b"\xff", None]},
        "nothing": None,
        "absent": None,
    }
    with pytest.raises(ValueError, match="10000-01-01"):
        values.reader_of(types.DateType())("10000-01-01")


PLACES = ColumnType("timestamptz", 3, None, True)
CENTS = ColumnType("numeric", 2, None, True)
WANTED = [
    (types.LongType(), ColumnType("int2"), True),
    (types.LongType(), ColumnType("float8"), False),
    (types.IntegerType(), ColumnType("float8"), True),
    (types.IntegerType(), ColumnType("float4"), False),
    (types.IntegerType(), CENTS, True),
    (types.IntegerType(), ColumnType("numeric", -2, None, True), False),
    (types.FloatType(), ColumnType("float4"), True),
    (types.DoubleType(), ColumnType("float4"), False),
    (types.DoubleType(), ColumnType("numeric"), True),
    (types.DoubleType(), CENTS, False),
    (types.DecimalType(10, 2), CENTS, True),
    (types.DecimalType(10, 3), CENTS, False),
    (types.DecimalType(20, 0), ColumnType("int8"), True),
    (types.DecimalType(20, 1), ColumnType("int8"), False),
    (types.StringType(), ColumnType("bytea"), False),
    (types.StringType(), ColumnType("int4"), True),
    (types.DateType(), ColumnType("timestamptz"), False),
    (types.TimestampType(), ColumnType("timestamp"), True),
    (types.TimestampType(), PLACES, False),
    (types.TimestampNTZType(), ColumnType("timestamptz"), True),
    (types.DayTimeIntervalType(), ColumnType("interval", -1), False),
    (types.NullType(), ColumnType("int4"), True),
    (types.ArrayType(types.TimestampType()), ColumnType("_timestamptz", None, PLACES), False),
    (types.ArrayType(types.LongType()), ColumnType("_int8", None, ColumnType("int8")), True),
    (types.ArrayType(types.LongType()), ColumnType("text"), False),
    (struct(a=types.LongType()), ColumnType("text"), False),
    (struct(a=types.MapType(types.LongType(), types.NullType())), ColumnType("jsonb"), True),
    (types.MapType(types.DoubleType(), types.LongType()), ColumnType("jsonb"), False),
    (types.YearMonthIntervalType(), ColumnType("interval"), False),
]


@pytest.mark.parametrize(("kind", "target", "fits"), WANTED, ids=lambda one: str(one)[:30])
def test_a_column_keeps_every_value_of_a_type_or_is_refused(
    kind: Any, target: ColumnType, fits: bool
) -> None:
    assert (misfit(kind, Column("n", target.kind, target)) is None) is fits
