"""Temporary databases: created, and dropped with their connections and slots."""

from __future__ import annotations

import uuid
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.errors import DatabaseUnusable, EosError
from eosframework.postgres.database.connection import Connection, Database

_SCHEMES = ("postgresql", "postgres")


def answers(server: str) -> bool:
    """Return whether a server accepts connections now."""
    try:
        _connect(server).close()
    except EosError:
        return False
    return True


def create_database(server: str, prefix: str = "eos_test") -> str:
    """Create an empty database and return its DSN, which is `server` with another name.

    Args:
        server: DSN of a role that may create databases.
        prefix: of its unique name.

    Raises:
        DatabaseUnusable: the server does not create one; says why.
    """
    name = f"{prefix}_{uuid.uuid4().hex[:12]}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
    try:
        with _connect(server) as connection:
            connection.execute(create)
    except (EosError, psycopg.Error) as error:
        raise DatabaseUnusable(
            f"a database for tests could not be created: {error}; name a role that may create "
            f"databases"
        ) from error
    return on_database(server, name)


def drop_database(server: str, dsn: str) -> None:
    """Drop a database with its connections and replication slots."""
    name = str(conninfo_to_dict(dsn)["dbname"])
    with _connect(server) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s",
            [name],
        )
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE database = %s",
            [name],
        )
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        connection.execute(drop)


def on_database(server: str, name: str) -> str:
    """Return the DSN of another database on the same server; a URI stays a URI."""
    parts = urlsplit(server)
    if parts.scheme in _SCHEMES:
        return urlunsplit(parts._replace(path=f"/{quote(name)}"))
    return make_conninfo(server, dbname=name)


def _connect(server: str) -> Connection:
    return Database(DatabaseSettings(dsn=SecretStr(server))).connect(autocommit=True)
