"""The outbox, counters of relays, and the functions that publish."""

from __future__ import annotations

from eosframework.postgres.database.migration import run_sql

revision = "0002_outbox"
down_revision = "0001_positions"


def upgrade() -> None:
    """Run this revision's .sql file."""
    run_sql(__file__)
