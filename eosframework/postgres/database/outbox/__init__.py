"""The outbox in PostgreSQL, as a table and as messages in the write-ahead log."""
