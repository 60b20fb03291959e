"""Positions of persisters, and the rows that a table refused."""

from __future__ import annotations

from eosframework.postgres.migration import run_sql

revision = "0001_positions"
down_revision = None


def upgrade() -> None:
    """Run the .sql file beside this one."""
    run_sql(__file__)
