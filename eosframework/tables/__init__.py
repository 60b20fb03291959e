"""Carries topics into tables: rows and the position they end at in one database transaction.

It decides when to claim, write and claim again. It refuses to know which database that is (its
port is `RowStore`), and it never reads a position from Kafka: that of the database is the truth.
"""
