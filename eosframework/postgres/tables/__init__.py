"""Table sinks: write the records of topics to database tables exactly once.

Rows and the next offset are written in one database transaction. The package decides when to claim
a partition, when to write, and when to claim again. The database is a port (`RowStore`).
Positions are never read from Kafka: the database's position is authoritative.

Internal: no module here is public.
"""
