"""Messages that cannot be sent: refused early in SQL, and set aside by the relay."""

from __future__ import annotations

from eosframework.postgres.database.migration import run_sql

revision = "0004_refused_messages"
down_revision = "0003_transactional_ids"


def upgrade() -> None:
    """Run this revision's .sql file."""
    run_sql(__file__)
