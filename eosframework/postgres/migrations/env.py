"""How Alembic runs the revisions: on the connection, and in the transaction, of the caller."""

from __future__ import annotations

from alembic import context

from eosframework.postgres.migration import SCHEMA

context.configure(connection=context.config.attributes["connection"], version_table_schema=SCHEMA)
context.run_migrations()
