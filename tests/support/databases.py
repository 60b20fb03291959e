"""Databases of a test's own on a server that tests share."""

from __future__ import annotations

import uuid

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict


def create_database(server: str) -> str:
    """Create an empty database and return its DSN, which is `server` with another name."""
    name = f"eos_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
        connection.execute(create)
    return on_database(server, name)


def drop_database(server: str, dsn: str) -> None:
    """Drop a database with its connections and replication slots."""
    name = str(conninfo_to_dict(dsn)["dbname"])
    with psycopg.connect(server, autocommit=True) as connection:
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
    """Return the DSN of another database on the same server."""
    return dsn_with(server, dbname=name)


def dsn_with(dsn: str, **parameters: str | int) -> str:
    """Return a DSN as a URI with some of its parameters changed."""
    known = {**conninfo_to_dict(dsn), **parameters}
    user, password = known.get("user"), known.get("password")
    place = f"{known['host']}:{known['port']}/{known['dbname']}"
    return f"postgresql://{user}:{password}@{place}"
