"""DSNs of tests: the same place with something changed."""

from __future__ import annotations

from psycopg.conninfo import conninfo_to_dict

DATABASE_PASSWORD = "p4ss-of-the-database"
"""Of a user whose password must not be shown."""


def dsn_with(dsn: str, **parameters: str | int) -> str:
    """Return a DSN as a URI with some of its parameters changed."""
    known = {**conninfo_to_dict(dsn), **parameters}
    user, password = known.get("user"), known.get("password")
    place = f"{known['host']}:{known['port']}/{known['dbname']}"
    return f"postgresql://{user}:{password}@{place}"
