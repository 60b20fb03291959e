from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

from eosframework.config import DatabaseSettings
from eosframework.errors import DatabaseRefused, StartRefused
from eosframework.postgres.database import Database, migrate, pending
from tests.support.servers.databases import dsn_with


def database_at(dsn: str) -> Database:
    return Database(DatabaseSettings.model_validate({"dsn": dsn}))


def test_a_new_database_gets_every_revision_once(database: str) -> None:
    missing = pending(database_at(database))

    applied = migrate(database_at(database))

    assert applied == missing
    assert applied[0] == "0001_positions"
    assert pending(database_at(database)) == []
    assert migrate(database_at(database)) == []


def test_processes_that_migrate_at_once_take_turns(database: str) -> None:
    with ThreadPoolExecutor(6) as crew:
        outcomes = list(crew.map(lambda _: migrate(database_at(database)), range(6)))

    assert sorted(map(bool, outcomes)) == [False] * 5 + [True]


def test_a_migration_that_fails_leaves_nothing(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA eosframework CREATE TABLE dead_letters ()")

    with pytest.raises(DatabaseRefused, match='relation "dead_letters" already exists'):
        migrate(database_at(database))

    with psycopg.connect(database) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'eosframework'::regnamespace "
            "AND relkind = 'r'"
        ).fetchall()
    assert found == [("dead_letters",)]
    assert "0001_positions" in pending(database_at(database))


def test_a_schema_of_a_newer_version_is_refused(database: str) -> None:
    migrate(database_at(database))
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM eosframework.alembic_version")
        connection.execute("INSERT INTO eosframework.alembic_version VALUES ('9999_future')")

    with pytest.raises(StartRefused, match="at revision 9999_future, which this eosframework"):
        pending(database_at(database))


def test_a_user_who_may_not_create_is_told_what_is_missing(database: str) -> None:
    name = database.rpartition("/")[2]
    role = sql.Identifier(name)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'weak'").format(role))
    weak = database_at(dsn_with(database, user=name, password="weak"))
    try:
        with pytest.raises(DatabaseRefused, match=r"permission denied for database .*grant it"):
            migrate(weak)
        with psycopg.connect(database, autocommit=True) as connection:
            owned = sql.SQL("CREATE SCHEMA eosframework AUTHORIZATION {}")
            connection.execute(owned.format(role))

        assert migrate(weak)
        assert pending(weak) == []
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_what_table_writers_keep_has_its_place(database: str) -> None:
    migrate(database_at(database))

    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO eosframework.positions VALUES ('app', 'orders', 0, 'id', NULL, 1)"
        )
        connection.execute(
            "INSERT INTO eosframework.dead_letters (application, table_name, topic, partition, "
            '"offset", error) VALUES (%s, %s, %s, 0, 7, %s)',
            ("app", "orders", "orders", "too long"),
        )
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(
                "INSERT INTO eosframework.positions VALUES ('app', 'orders', 0, 'id', 5, 1)"
            )
