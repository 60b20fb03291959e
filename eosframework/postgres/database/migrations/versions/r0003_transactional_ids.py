"""Pools from which applications lease transactional ids."""

from __future__ import annotations

from eosframework.postgres.database.migration import run_sql

revision = "0003_transactional_ids"
down_revision = "0002_outbox"


def upgrade() -> None:
    """Run this revision's .sql file."""
    run_sql(__file__)
