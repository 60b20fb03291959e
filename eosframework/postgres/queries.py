"""Named queries from .sql files: `queries.is_standby(connection)`.

Each .sql file in this package describes its queries. Parameters are named.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import aiosql


def load_queries(file: str) -> Any:
    """Return the queries of a .sql file in this package, each as a method.

    A query's suffix is the kind of its result: `^` one row or None, `$` one value, `!` the number
    of affected rows, none an iterator of rows, which sends nothing until its first row is
    requested.
    """
    sql = files("eosframework.postgres").joinpath(file).read_text(encoding="utf-8")
    return aiosql.from_str(sql, "psycopg")  # pyright: ignore[reportUnknownMemberType]


queries: Any = load_queries("queries.sql")
"""Queries of general use."""
