"""Values that sinks of Spark write are those of the rows, whatever the session's settings are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from eosframework.errors import EosError
from eosframework.serialization.serdes import Serde
from eosframework.spark import table_sink
from eosframework.spark.sinks.kafka.columns import HEADERS
from tests.support.applications.spark_sinks import SinkWorld

pytest.importorskip("pyspark")

HOSTILE = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
}
"""Each changes a value that is left to it."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LATE = -62_135_596_800_000_000, 253_402_318_799_999_999
"""The begin of the year 1, and the end of 9999 in New York: Python has no such year."""

MOMENTS = (0, 1, -1, 1_700_000_000_500_000, 1_700_000_000_500_001, FIRST, LATE)
"""Microseconds since the epoch."""

SUMMER_GAP = "timestamp_ntz'2024-03-10 02:30:00.25'"
"""A time that New York's clocks skip."""


@contextmanager
def hostile(world: SinkWorld) -> Iterator[None]:
    """Settings of a user's session that change how Spark prints and stores values."""
    before = {name: world.spark.conf.get(name) for name in HOSTILE}
    try:
        for name, value in HOSTILE.items():
            world.spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            world.spark.conf.set(name, str(value))


def iso(micros: int) -> str:
    """The moment as pydantic writes it."""
    if micros == LATE:
        return "10000-01-01T04:59:59.999999Z"
    return (EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


@pytest.mark.exhaustive
def test_a_topic_has_each_value_whatever_the_session_is_set_to(world: SinkWorld) -> None:
    given = ", ".join(f"{n}L" for n in MOMENTS)
    rows = world.spark.sql(
        "SELECT named_struct('at', timestamp_micros(n), 'zero', -1e-320D / 1e10D) AS key, "
        f"timestamp_micros(IF(n = {LATE}, 0, n)) AS at, "
        "named_struct('moments', array(timestamp_micros(n), NULL), "
        "'by_day', map(DATE'9999-12-31', timestamp_micros(n)), "
        f"'local', {SUMMER_GAP}, 'nothing', NULL, 'exact', CAST(0.1 AS decimal(20, 8)), "
        "'bytes', X'ff00', 'zero', -1e-320D / 1e10D, 'text', 'ü') AS data "
        f"FROM (SELECT explode(array({given})) AS n)"
    )
    read: Serde = Serde("repr", lambda one: repr(one).encode(), None)
    with hostile(world):
        sink = world.sink(key="key", value="data", timestamp="at", shards=1)
        sink.write(rows, job="json", directory=str(world.checkpoint))
        known = rows.filter("year(key.at) BETWEEN 1960 AND 2040")
        sink = world.sink(
            value="data", serde=read, key_serde=read, timestamp="at", name="python", shards=1
        )
        sink.write(known, job="python", directory=str(world.checkpoint))
    found = {m.key(): m for m in world.read(world.topic)}
    for n in MOMENTS:
        key = json.dumps({"at": iso(n), "zero": 0.0}, separators=(",", ":"))
        message = found.pop(key.encode())
        assert message.timestamp()[1] == (1 if n == LATE else max(n // 1000, 1))
        assert json.loads(message.value(), parse_float=Decimal) == {
            "moments": [iso(n), None],
            "by_day": {"9999-12-31": iso(n)},
            "local": "2024-03-10T02:30:00.250000",
            "nothing": None,
            "exact": Decimal("0.10000000"),
            "bytes": "/wA=",
            "zero": Decimal("-0.0"),
            "text": "ü",
        }
        if n not in (FIRST, LATE):
            moment = EPOCH + timedelta(microseconds=n)
            in_python = found.pop(repr({"at": moment, "zero": 0.0}).encode()).value().decode()
            assert f"'moments': [{moment!r}, None]" in in_python
            assert "'local': datetime.datetime(2024, 3, 10, 2, 30, 0, 250000)" in in_python
            assert r"'bytes': b'\xff\x00'" in in_python
    assert not found


@pytest.mark.exhaustive
def test_what_is_not_exact_is_refused_by_its_type_or_in_its_row(world: SinkWorld) -> None:
    invalid = "CAST(X'ff' AS string)"
    header = f"CAST(array(named_struct('key', NULL, 'value', X'01')) AS {HEADERS})"
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "has NaN or an infinity in column 'n'": ("array(1D, double('NaN')) AS n", {}),
        "has a text in column 'n' that is not UTF-8": (f"named_struct('a', {invalid}) AS n", {}),
        "has a header without a key of text in column 'n'": (
            f"{header.format('NULL')} AS n",
            {"value": "key", "headers": "n"},
        ),
        "keys of a map are binary": ("map(X'01', 1) AS n", {}),
        "interval has no form outside of Spark": ("make_interval(1) AS n", {}),
        "has the field 'a' twice": ("named_struct('a', 1, 'a', 2) AS n", {}),
        "cannot be a key: it has a map": ("map('a', 1) AS n", {"key": "n"}),
        "key column 'n' has type void, so every key would be null": ("NULL AS n", {"key": "n"}),
        "columns 'n' and 'N', which are one name": ("1 AS n, 2 AS `N`", {}),
        "'n' has type bigint; expected string. Cast": ("1L AS n", {"topic_column": "n"}),
        "'n' has type array<struct<key:string,value:string>>; expected array": (
            "array(named_struct('key', 'a', 'value', 'b')) AS n",
            {"headers": "n"},
        ),
    }
    for expected, (columns, options) in asked.items():
        rows = world.spark.sql(f"SELECT 'k' AS key, {columns} FROM range(3)")
        with pytest.raises(EosError, match=re.escape(expected)) as refused:
            world.sink(**options).write(rows, job="bad", directory=str(world.checkpoint))
        assert "sink 'out.bad': " in str(refused.value)
    assert not world.read(world.topic)


def test_a_table_has_each_value_whatever_the_session_is_set_to(
    world: SinkWorld, database: str
) -> None:
    """Read as text, with PostgreSQL's own functions."""
    execute(
        database,
        'CREATE TABLE "Exact Values" ("N" bigint PRIMARY KEY, at timestamptz, local timestamp, '
        'utc timestamptz, "Day.of `it`" date, '
        "doc jsonb, tags jsonb, moments timestamptz[], amount numeric, same real, data bytea, "
        "took interval, nothing integer)",
    )
    given = ", ".join(f"{n}L" for n in MOMENTS)
    rows = world.spark.sql(
        "SELECT n AS `N`, timestamp_micros(n) AS at, timestamp_micros(n) AS local, "
        f"{SUMMER_GAP} AS utc, date_from_unix_date(2932896 + CAST(n % 2 AS int)) AS "
        "`Day.of ``it```, "
        "named_struct('map', map('a', array(map('b', timestamp_micros(n)))), 'exact', "
        "CAST(18446744073709551617.25 AS decimal(38, 8)), 'bytes', X'ff00') AS doc, "
        "map('a', 1) AS tags, array(timestamp_micros(n), NULL) AS moments, "
        "CAST(0.1 AS decimal(20, 8)) AS amount, float(0.1) AS same, X'00ff' AS data, "
        "INTERVAL '1 02:03:04.5' DAY TO SECOND AS took, NULL AS nothing "
        f"FROM (SELECT explode(array({given})) AS n)"
    )
    with hostile(world):
        sink = table_sink(
            '"Exact Values"',
            dsn=database,
            mode="upsert",
            keys=["N"],
            shards=2,
            application=world.name,
        )
        sink.write(rows, job="exact", directory=str(world.checkpoint))
    found = execute(
        database,
        'SELECT "N", extract(epoch FROM at) * 1000000, extract(epoch FROM local) * 1000000, '
        "utc::text, \"Day.of `it`\" - DATE '1970-01-01', doc::text, tags::text, "
        "extract(epoch FROM moments[1]) * 1000000, moments[2], amount::text, same::text, "
        "encode(data, 'hex'), extract(epoch FROM took), nothing FROM \"Exact Values\" ORDER BY 1",
    )
    assert found == [
        (
            n,
            n,
            n,
            "2024-03-10 02:30:00.25+00",
            2932896 + (n % 2 if n >= 0 else -(-n % 2)),
            json.dumps(
                {
                    "map": {"a": [{"b": iso(n)}]},
                    "bytes": "/wA=",
                    "exact": 0,
                }
            ).replace('"exact": 0', '"exact": 18446744073709551617.25000000'),
            '{"a": 1}',
            n,
            None,
            "0.10000000",
            "0.1",
            "00ff",
            Decimal("93784.5"),
            None,
        )
        for n in sorted(MOMENTS)
    ]


def test_a_table_that_does_not_keep_every_value_is_refused(world: SinkWorld, database: str) -> None:
    execute(
        database,
        "CREATE TABLE narrow (n numeric(10, 2), at timestamptz(3), doc jsonb, short text, "
        "data bytea, tiny smallint CHECK (tiny < 60)); "
        "CREATE TABLE strict (id bigint NOT NULL, at date NOT NULL, note text NOT NULL DEFAULT '')",
    )
    asked = {
        "column n is numeric(10,2), which does": "CAST(1 AS decimal(9, 3)) AS n",
        "it is double, and column n is numeric(10,2)": "1.5D AS n",
        "column at is timestamp(3) with time zone": "timestamp_micros(1) AS at",
        "column short is text, which": "named_struct('a', 1) AS short",
        "column data is bytea": "'a' AS data",
        "have a column 'other', and table narrow has only at, data, doc": "1 AS other",
        "keys of a map are binary": "map(X'01', 1) AS doc",
        "has NaN or an infinity in column 'doc'": "array(double('NaN')) AS doc, 'k7' AS short",
        "has a text in column 'short' that is not UTF-8": "CAST(X'ff' AS string) AS short",
    }
    strict = table_sink("strict", dsn=database, shards=2, application=world.name)
    for expected, columns in {
        "have no column 'at', which is NOT NULL in table strict and has no": "1L AS id",
        "'at' of the rows cannot be written to table strict: it is void": "1L AS id, NULL AS at",
    }.items():
        rows = world.spark.sql(f"SELECT {columns}")
        with pytest.raises(EosError, match=re.escape(expected)):
            strict.write(rows, job="bad", directory=str(world.checkpoint))
    sink = table_sink("narrow", dsn=database, shards=2, application=world.name)
    for expected, columns in asked.items():
        rows = world.spark.sql(f"SELECT {columns} FROM range(3)")
        with pytest.raises(EosError, match=re.escape(expected)) as refused:
            sink.write(rows, job="bad", directory=str(world.checkpoint))
        if "k7" in columns:
            assert "batch 0 of query job bad: sink" in str(refused.value)
            assert '"short":"k7"' in str(refused.value)
    rows = world.spark.sql("SELECT 70 AS tiny, 'k9' AS short")
    with pytest.raises(EosError) as refused:
        sink.write(rows, job="tiny", directory=str(world.checkpoint))
    assert re.match(
        r"batch 0 of query job tiny: sink 'narrow.tiny': table narrow refuses row 0 of shard \d "
        r'\(\{"tiny":70,"short":"k9"\}\): .*violates check constraint "narrow_tiny_check"',
        str(refused.value),
    ), str(refused.value)
    fitting = world.spark.sql("SELECT CAST(1.25 AS decimal(9, 2)) AS n, 5 AS doc")
    sink.write(fitting, job="good", directory=str(world.checkpoint))
    assert execute(database, "SELECT n, doc FROM narrow") == [(Decimal("1.25"), 5)]


def execute(dsn: str, sql: Any) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True, options="-c TimeZone=UTC") as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []
