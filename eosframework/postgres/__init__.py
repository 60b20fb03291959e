"""PostgreSQL: table sinks, the outbox, and the database that both use.

`outbox/` and `tables/` own the cycles and their ports; `database/` implements these, and is the
only importer of a driver.

Internal: no module here is public.
"""
