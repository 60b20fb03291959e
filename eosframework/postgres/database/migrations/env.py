"""Alembic's environment: runs revisions on the caller's connection and transaction."""

from __future__ import annotations

from alembic import context

from eosframework.postgres.database.migration import SCHEMA

context.configure(connection=context.config.attributes["connection"], version_table_schema=SCHEMA)
context.run_migrations()
