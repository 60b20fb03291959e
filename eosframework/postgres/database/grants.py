"""Privileges that a role needs on eosframework's tables if another role owns them."""

from __future__ import annotations

from dataclasses import dataclass

from eosframework.errors import StartRefused
from eosframework.postgres.database.connection import Database, queries
from eosframework.postgres.database.error_classes import translating

SCHEMA = "eosframework"


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on one object of the schema.

    Args:
        kind: SCHEMA, TABLE or SEQUENCE.
        name: within the schema; None: the schema itself.
    """

    kind: str
    name: str | None
    privileges: tuple[str, ...]

    def statement(self, role: str) -> str:
        """Return the GRANT statement for the owner to run."""
        where = SCHEMA if self.name is None else f"{SCHEMA}.{self.name}"
        return f"GRANT {', '.join(self.privileges)} ON {self.kind} {where} TO {role}"


_EVERYBODY = (
    Grant("SCHEMA", None, ("USAGE",)),
    Grant("TABLE", "alembic_version", ("SELECT",)),
)

TABLE_WRITER_GRANTS = (
    *_EVERYBODY,
    Grant("TABLE", "positions", ("SELECT", "INSERT", "UPDATE")),
    Grant("TABLE", "dead_letters", ("INSERT",)),
)
"""Privileges of a table writer, besides those on the tables that it writes."""

SPARK_SINK_GRANTS = (
    *TABLE_WRITER_GRANTS,
    Grant("TABLE", "spark_sinks", ("SELECT", "INSERT", "UPDATE")),
)
"""Privileges of a table sink of Spark, besides those on its table."""

DECISION_GRANTS = (
    *_EVERYBODY,
    Grant("TABLE", "decisions", ("SELECT", "INSERT", "UPDATE")),
    Grant("TABLE", "decided_offsets", ("SELECT", "INSERT", "UPDATE", "DELETE")),
)
"""Privileges of a worker whose outputs and rows are decided together."""

RELAY_GRANTS = (
    *_EVERYBODY,
    Grant("TABLE", "outbox", ("SELECT", "DELETE")),
    Grant("SEQUENCE", "outbox_number_seq", ("SELECT",)),
    Grant("TABLE", "relays", ("SELECT", "INSERT", "UPDATE", "DELETE")),
    Grant("TABLE", "outbox_refused", ("INSERT",)),
)
"""Privileges of a relay that reads the outbox table."""


def require_grants(database: Database, needed: tuple[Grant, ...]) -> None:
    """Make sure that the role has the privileges on the existing objects of the schema.

    Raises:
        StartRefused: the message has the missing GRANT statements.
        DatabaseUnavailable: the database is unavailable.
    """
    flat = [(grant, privilege) for grant in needed for privilege in grant.privileges]
    with (
        translating(f"read the privileges on {database.display}"),
        database.connect(autocommit=True) as connection,
    ):
        rows = list(
            queries.lacking(
                connection,
                kinds=[grant.kind for grant, _ in flat],
                names=[grant.name or "" for grant, _ in flat],
                privileges=[privilege for _, privilege in flat],
            )
        )
    lacking: dict[tuple[str, str | None], list[str]] = {}
    for kind, name, privilege, _ in rows:
        lacking.setdefault((kind, name or None), []).append(privilege)
    if lacking:
        role = rows[0][3]
        statements = [
            Grant(kind, name, tuple(privileges)).statement(role)
            for (kind, name), privileges in lacking.items()
        ]
        raise StartRefused(
            f"role {role} may not use all that it needs in {database.display}; as the owner of "
            f"schema {SCHEMA}, run: {'; '.join(statements)}"
        )
