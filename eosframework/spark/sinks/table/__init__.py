"""A sink of Spark that writes to a PostgreSQL table.

Owns the table's columns in the user's rows, and the batches in the database. Its shards are written
by the attempts of a backfill (`spark/executor/table_attempt`).
"""
