"""Access of roles to the write-ahead log that a relay reads (`outbox.source=slot`)."""

from __future__ import annotations

import psycopg
import structlog

from eosframework.postgres.connection import Connection
from eosframework.postgres.outbox.relay_session import outbox_queries


def close_log(connection: Connection, place: str) -> None:
    """Restrict `pg_logical_emit_message` to the owner of `emit`, or report that it is open.

    PostgreSQL lets every role of a database call it, and with it forge a message of any other. Only
    a superuser can revoke that.

    Args:
        connection: of the relay, in autocommit.
        place: the database, for the report.
    """
    events = structlog.get_logger("eosframework.relay")
    is_open, owner, functions = outbox_queries.forgers(connection)
    if not is_open:
        return
    statements = [
        statement
        for function in functions
        for statement in (
            f"GRANT EXECUTE ON FUNCTION {function} TO {owner}",
            f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC",
        )
    ]
    try:
        with connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        is_open = True
    else:
        # REVOKE without the privilege is a warning and not an error, so look again.
        is_open, *_ = outbox_queries.forgers(connection)
    if is_open:
        events.warning(
            "messages_can_be_forged",
            database=place,
            reason="every role of the database may call pg_logical_emit_message",
            mend=f"as a superuser, run in this database: {'; '.join(statements)}",
        )
    else:
        events.info("log_closed", database=place, revoked_from="PUBLIC", granted_to=owner)
