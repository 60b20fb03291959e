"""Named queries from .sql files: `queries.is_standby(connection)`.

Each file beside this module describes what its queries do. Parameters go by name.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import aiosql


def load_queries(file: str) -> Any:
    """Return the queries of a .sql file in this package, each as a method.

    A query's suffix tells what it returns: `^` one row or None, `$` one value, `!` how many rows
    it touched, none an iterator of rows, which sends nothing until the first is asked for.
    """
    sql = files("eosframework.postgres").joinpath(file).read_text(encoding="utf-8")
    return aiosql.from_str(sql, "psycopg")  # pyright: ignore[reportUnknownMemberType]


queries: Any = load_queries("queries.sql")
"""Those that every part needs."""
