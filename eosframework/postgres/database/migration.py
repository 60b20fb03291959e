"""Migrations of the schema `eosframework`.

A revision is a module in `migrations/versions` that runs the .sql file of the same name. Revisions
add; none drops or narrows, so an older eosframework runs on a newer schema.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from alembic import command, op
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import Connection

from eosframework.errors import StartRefused
from eosframework.postgres.database.connection import Database, queries
from eosframework.postgres.database.error_classes import translating

SCHEMA = "eosframework"


def migrate(database: Database) -> list[str]:
    """Apply the missing revisions; concurrent processes are serialized.

    Returns:
        The revisions that were missing, in order; empty: nothing was changed.

    Raises:
        StartRefused: the schema was made by a newer eosframework.
        DatabaseUnavailable: the database is unavailable; the missing revisions still are, or the
            answer is lost.
        DatabaseRefused: the user lacks a privilege; names it.
    """
    if not pending(database):
        return []
    doing = f"migrate the schema {SCHEMA} of {database.display}"
    with translating(doing), locked(database) as connection:
        missing = _pending(connection, database)
        if missing:
            if not queries.has_schema(driver(connection)):
                connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")
            command.upgrade(_config(connection), "heads")
    return missing


@contextmanager
def locked(database: Database) -> Generator[Connection]:
    """Open a transaction that may change tables; concurrent processes are serialized."""
    with database.engine().begin() as connection:
        queries.lock_migrations(driver(connection))
        yield connection


def pending(database: Database) -> list[str]:
    """Return the missing revisions, in the order in which they are applied.

    Raises:
        StartRefused: the schema was made by a newer eosframework.
        DatabaseUnavailable: the database is unavailable.
    """
    doing = f"read the schema {SCHEMA} of {database.display}"
    with translating(doing), database.engine().connect() as connection:
        return _pending(connection, database)


def run_sql(revision: str) -> None:
    """Run a revision's .sql file, as one script.

    Args:
        revision: the revision's own `__file__`.
    """
    driver(op.get_bind()).execute(Path(revision).with_suffix(".sql").read_text(encoding="utf-8"))


def _pending(connection: Connection, database: Database) -> list[str]:
    context = MigrationContext.configure(connection, opts={"version_table_schema": SCHEMA})
    known = ScriptDirectory.from_config(_config(connection))
    there = context.get_current_heads()
    try:
        missing = known.iterate_revisions("heads", there or "base")
        return [script.revision for script in missing][::-1]
    except (CommandError, ResolutionError) as error:
        raise StartRefused(
            f"the schema {SCHEMA} of {database.display} is at revision {', '.join(there)}, which "
            f"this eosframework does not know; use the version that made it, or a newer one"
        ) from error


def _config(connection: Connection) -> Config:
    config = Config(attributes={"connection": connection})
    place = str(files("eosframework.postgres.database").joinpath("migrations"))
    config.set_main_option("script_location", place.replace("%", "%%"))
    return config


def driver(connection: Connection) -> Any:
    """Return psycopg's own connection below SQLAlchemy's."""
    return connection.connection.driver_connection
