from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from eosframework.config import DatabaseSettings
from eosframework.embedded import PostgresServer, start_postgres
from eosframework.embedded.data_directory import free_ports
from eosframework.errors import (
    DatabaseConflict,
    DatabaseRefused,
    DatabaseUnavailable,
    DatabaseUnusable,
    DataRefused,
)
from eosframework.postgres.database import Database, commit, translating
from tests.support.servers.databases import dsn_with

SECRET = "p4ssw0rd"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that tests may kill and suspend, and leave running."""
    with start_postgres(tmp_path_factory.mktemp("postgres")) as started:
        yield started


def database_at(dsn: str, **settings: Any) -> Database:
    return Database(DatabaseSettings.model_validate({"dsn": dsn, **settings}))


def test_both_ends_limit_how_long_they_wait(database: str) -> None:
    limited = database_at(
        database,
        statement_timeout_seconds=3,
        idle_transaction_timeout_seconds=7.5,
        network_timeout_seconds=8,
    )

    with limited.connect() as connection:
        settings = dict(
            connection.execute(
                "SELECT name, setting FROM pg_settings WHERE name LIKE '%%timeout' "
                "OR name LIKE 'tcp%%' OR name = 'application_name'"
            ).fetchall()
        )
        parameters = connection.info.get_parameters()

    assert settings["statement_timeout"] == "3000"
    assert settings["idle_in_transaction_session_timeout"] == "7500"
    assert settings["tcp_keepalives_idle"] == "4"
    assert settings["tcp_user_timeout"] == "8000"
    assert settings["application_name"] == "eosframework"
    assert parameters["tcp_user_timeout"] == "8000"
    assert parameters["keepalives_idle"] == "4"


def test_what_the_dsn_says_itself_is_not_overridden(database: str) -> None:
    own = database_at(f"{database}?application_name=mine&keepalives_idle=3&connect_timeout=4")

    with own.connect() as connection:
        parameters = connection.info.get_parameters()

    assert parameters["application_name"] == "mine"
    assert parameters["keepalives_idle"] == "3"


def test_a_suspended_server_fails_connect_and_statement_in_time(server: PostgresServer) -> None:
    quick = database_at(
        server.dsn,
        connect_timeout_seconds=2,
        statement_timeout_seconds=1,
        network_timeout_seconds=2,
    )
    patient = database_at(server.dsn, statement_timeout_seconds=1, network_timeout_seconds=2)
    connection = patient.connect()
    connection.execute("SELECT 1")
    server.suspend()
    try:
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="said nothing for 3 s"), translating("read"):
            connection.execute("SELECT 2")
        with pytest.raises(DatabaseUnavailable, match="timeout expired"):
            quick.connect()
        took = time.monotonic() - started
    finally:
        server.resume()

    assert connection.closed
    assert took < 30
    with patient.connect() as again:
        assert again.execute("SELECT 3").fetchone() == (3,)


def test_a_statement_that_takes_too_long_is_given_up_by_the_server(database: str) -> None:
    quick = database_at(database, statement_timeout_seconds=1)

    with (
        quick.connect() as connection,
        pytest.raises(DatabaseUnavailable, match=r"statement_timeout_seconds.*57014"),
        translating("wait"),
    ):
        connection.execute("SELECT pg_sleep(60)")


def test_a_transaction_that_stands_still_is_ended_and_gives_its_locks_up(database: str) -> None:
    zombie = database_at(database, idle_transaction_timeout_seconds=0.3).connect()
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE locked AS SELECT 1 AS n")
    zombie.execute("UPDATE locked SET n = 2")

    with psycopg.connect(database) as connection:
        connection.execute("UPDATE locked SET n = 3")

    with pytest.raises(DatabaseUnavailable, match="25P03"):
        commit(zombie, "write")


def test_a_killed_server_is_away_and_serves_the_next_connection(server: PostgresServer) -> None:
    database = database_at(server.dsn)
    connection = database.connect()

    server.kill()
    with pytest.raises(DatabaseUnavailable, match=r"Connection refused.*; start the server"):
        database.connect()
    server.start()

    with pytest.raises(DatabaseUnavailable, match="connection was lost"), translating("read"):
        connection.execute("SELECT 1")
    with database.connect() as again:
        assert again.execute("SELECT 1").fetchone() == (1,)


def test_a_commit_without_an_answer_may_be_done(server: PostgresServer) -> None:
    connection = database_at(server.dsn).connect()
    connection.execute("CREATE TABLE in_doubt ()")
    server.kill()

    with pytest.raises(DatabaseUnavailable, match="could not write, or the answer is lost"):
        commit(connection, "write")
    server.start()


def test_a_commit_that_the_server_refuses_is_not_done(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    connection = database_at(database).connect()
    connection.execute("INSERT INTO t VALUES (1), (1)")

    with pytest.raises(DataRefused, match=r"Key \(n\)=\(1\) already exists") as refused:
        commit(connection, "write")

    assert refused.value.sqlstate == "23505"
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    connection.close()


def test_transactions_that_cannot_both_be_done_conflict(database: str) -> None:
    with psycopg.connect(database) as setup:
        setup.execute("CREATE TABLE counter AS SELECT 1 AS n")
    one, other = (database_at(database).connect() for _ in range(2))
    for connection in (one, other):
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.execute("SELECT n FROM counter")
    one.execute("UPDATE counter SET n = 2")
    commit(one, "write")

    with pytest.raises(DatabaseConflict, match="40001"), translating("write"):
        other.execute("UPDATE counter SET n = 3")

    other.rollback()
    assert other.execute("SELECT n FROM counter").fetchone() == (2,)
    one.close()
    other.close()


def test_a_missing_privilege_is_named_with_what_to_do(database: str) -> None:
    with database_at(database).connect() as connection:
        connection.execute("CREATE TABLE t ()")
        connection.execute("SET LOCAL ROLE pg_monitor")
        with (
            pytest.raises(DatabaseRefused, match=r"denied for table t \(42501\); grant it"),
            translating("write to t"),
        ):
            connection.execute("SELECT * FROM t")


def test_what_is_wrong_with_a_dsn_is_told_in_one_message_without_the_secret(
    database: str,
) -> None:
    wrong = {
        dsn_with(database, password=SECRET): "correct user and password",
        dsn_with(database, dbname="nowhere"): 'database "nowhere" does not exist; create it',
        dsn_with(database, user="nobody", password=SECRET): "correct user and password",
        dsn_with(database, port=free_ports(1)[0], password=SECRET): "start the server",
        dsn_with(database, host="nowhere.invalid", password=SECRET): "correct the host",
        f"{dsn_with(database, password=SECRET)}?sslmode=require": "remove sslmode",
    }
    for dsn, expected in wrong.items():
        with pytest.raises(DatabaseUnusable) as raised:
            database_at(dsn).require()
        message = str(raised.value)
        assert expected in message
        assert "\n" not in message
        assert SECRET not in message


def test_the_engine_uses_the_same_connections(database: str) -> None:
    engine = database_at(database, statement_timeout_seconds=5).engine()

    with engine.connect() as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar() == "5s"

    with (
        engine.connect() as connection,
        pytest.raises(DatabaseRefused, match="42P01"),
        translating("look"),
    ):
        connection.execute(text("SELECT * FROM nowhere"))


def test_a_copy_that_stalls_is_cut(server: PostgresServer) -> None:
    quick = database_at(server.dsn, statement_timeout_seconds=1, network_timeout_seconds=2)
    connection = quick.connect(autocommit=True)
    connection.execute("CREATE TEMP TABLE filled (t text)")

    def fill() -> None:
        with connection.cursor().copy("COPY filled FROM STDIN") as copy:
            copy.write("first\n")
            server.suspend()
            for _ in range(1000):
                copy.write("x" * 100_000 + "\n")

    try:
        with pytest.raises(DatabaseUnavailable, match="connection was lost"), translating("copy"):
            fill()
    finally:
        server.resume()
    assert connection.closed
