"""PostgreSQL: connections, error classes, named queries and the schema `eosframework`.

Owns every statement that is sent to a database and the tables that eosframework keeps there; it is
the only importer of psycopg, SQLAlchemy, Alembic and aiosql. It classifies each error
(`eosframework.errors.DatabaseError`); the caller decides how to react.

Internal: no module here is public.
"""

from __future__ import annotations

import logging

from eosframework.errors import ConfigurationError

try:
    logging.getLogger("alembic").setLevel(logging.WARNING)  # It logs the modules it loads.
    import aiosql as _aiosql  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import alembic as _alembic  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import psycopg as _psycopg  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import sqlalchemy as _sqlalchemy  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as _error:
    raise ConfigurationError(
        "PostgreSQL needs packages that are not installed; "
        "run: pip install 'eosframework[postgres]'"
    ) from _error

from eosframework.postgres.database.connection import Database
from eosframework.postgres.database.error_classes import commit, translating
from eosframework.postgres.database.migration import migrate, pending

__all__ = ["Database", "commit", "migrate", "pending", "translating"]
