"""Positions of table writers, and rows that a table rejected."""

from __future__ import annotations

from eosframework.postgres.database.migration import run_sql

revision = "0001_positions"
down_revision = None


def upgrade() -> None:
    """Run this revision's .sql file."""
    run_sql(__file__)
