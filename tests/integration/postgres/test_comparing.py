"""Two tables of a real PostgreSQL compared: rows that are there twice count twice."""

from __future__ import annotations

import psycopg
import pytest
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.errors import DatabaseRefused
from eosframework.postgres.database import Database
from eosframework.postgres.database.tables.table_comparison import ComparedTables, compare_tables

TABLES = """
CREATE SCHEMA stats;
CREATE TABLE late (id bigserial PRIMARY KEY, flight text, delay integer, details json,
                   written_at timestamptz DEFAULT clock_timestamp());
CREATE TABLE stats.late_v2 (LIKE late INCLUDING ALL);
ALTER TABLE stats.late_v2 ADD note text;
INSERT INTO late (flight, delay, details)
VALUES ('UA1', 20, '{"a": 1, "b": 2}'), ('UA1', 20, '{"a": 1, "b": 2}'), ('DL7', 30, NULL);
INSERT INTO stats.late_v2 (flight, delay, details)
VALUES ('DL7', 30, NULL), ('UA1', 20, '{"b": 2, "a": 1}'), ('UA1', 20, '{"a":1,"b":2}');
"""


@pytest.fixture
def connection(database: str) -> psycopg.Connection[tuple[object, ...]]:
    with psycopg.connect(database, autocommit=True) as opened:
        opened.execute(TABLES)
    return psycopg.connect(database, autocommit=True)


def compared(dsn: str, *, where: str | None = None, limit: int = 10) -> ComparedTables:
    database = Database(DatabaseSettings(dsn=SecretStr(dsn)))
    return compare_tables(database, "late", "stats.late_v2", where=where, limit=limit)


def test_equal_rows_in_another_order_are_equal_and_each_one_too_many_is_found(
    database: str, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    with connection:
        found = compared(database)
        assert (found.rows, found.only) == ((3, 3), (0, 0))
        assert found.columns == ["flight", "delay", "details"]
        assert found.left_out == ["id", "written_at", "note"]

        connection.execute("INSERT INTO late (flight, delay) VALUES ('DL7', 30), ('AA9', 45)")
        connection.execute("UPDATE stats.late_v2 SET delay = 21 WHERE id = 5")
        found = compared(database)
        assert (found.rows, found.only) == ((5, 3), (3, 1))
        assert [row["flight"] for row in found.examples[0]] == ["AA9", "DL7", "UA1"]
        assert found.examples[1] == [{"flight": "UA1", "delay": 21, "details": {"a": 1, "b": 2}}]
        assert len(compared(database, limit=1).examples[0]) == 1
        assert compared(database, where="flight = 'DL7'").only == (1, 0)


def test_what_cannot_be_compared_is_said(
    database: str, connection: psycopg.Connection[tuple[object, ...]]
) -> None:
    with connection:
        with pytest.raises(DatabaseRefused, match="nothing"):
            compared(database, where="nothing > 1")
        connection.execute("DROP TABLE stats.late_v2")
        with pytest.raises(DatabaseRefused, match=r"has no table stats\.late_v2"):
            compared(database)
