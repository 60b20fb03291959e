"""The decisions of the database about transactions of workers."""

from __future__ import annotations

from eosframework.postgres.database.migration import run_sql

revision = "0006_decisions"
down_revision = "0005_spark_sinks"


def upgrade() -> None:
    """Run this revision's .sql file."""
    run_sql(__file__)
