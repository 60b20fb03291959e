"""The servers that other tests break: a primary with TLS, and a standby that takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from eosframework.config import DatabaseSettings
from eosframework.embedded import PostgresServer
from eosframework.errors import DatabaseUnusable
from eosframework.postgres.database import Database
from tests.support.applications.pipeline import wait_until
from tests.support.servers.debian_postgres import (
    both,
    identity,
    promote,
    start_primary,
    start_standby,
)


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[PostgresServer]:
    with start_primary(tmp_path / "primary") as server:
        yield server


@pytest.fixture
def standby(primary: PostgresServer, tmp_path: Path) -> Iterator[PostgresServer]:
    with start_standby(primary, tmp_path / "standby") as server:
        yield server


def database(dsn: str) -> Database:
    return Database(DatabaseSettings.model_validate({"dsn": dsn}))


def test_tls_options_of_the_dsn_are_obeyed(primary: PostgresServer, tmp_path: Path) -> None:
    certificate = primary.data_dir / "server.crt"
    verified = database(f"{primary.dsn}?sslmode=verify-full&sslrootcert={certificate}")
    nothing = tmp_path / "nothing.crt"
    nothing.write_text("")
    unverified = database(f"{primary.dsn}?sslmode=verify-full&sslrootcert={nothing}")

    with verified.connect() as connection:
        encrypted = connection.execute(
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        ).fetchone()

    assert encrypted == (True,)
    with pytest.raises(DatabaseUnusable, match="sslrootcert"):
        unverified.require()


def test_a_promoted_standby_keeps_the_system_identifier_and_begins_a_new_timeline(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    either = database(both(primary, standby))
    before = identity(primary.dsn)
    with pytest.raises(DatabaseUnusable, match="is a standby, which is read-only"):
        database(standby.dsn).require()
    with either.connect() as connection:
        assert connection.info.port == primary.port
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    with psycopg.connect(standby.dsn, autocommit=True) as connection:
        wait_until(
            lambda: connection.execute("SELECT to_regclass('kept')").fetchone() != (None,),
            "the standby followed",
        )

    primary.kill()
    promote(standby)

    assert identity(standby.dsn) == (before[0], before[1] + 1)
    with either.connect() as connection:
        assert connection.info.port == standby.port
        assert connection.execute("SELECT n FROM kept").fetchone() == (1,)
