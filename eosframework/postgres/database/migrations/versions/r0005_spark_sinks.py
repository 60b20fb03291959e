"""The last batch of each table sink of Spark."""

from __future__ import annotations

from eosframework.postgres.database.migration import run_sql

revision = "0005_spark_sinks"
down_revision = "0004_refused_messages"


def upgrade() -> None:
    """Run this revision's .sql file."""
    run_sql(__file__)
