"""Spark's side of a backfill: sessions that can read Kafka, and rows in the order of tasks.

Owns what is a DataFrame: closed ranges of topics, pinned files, staging, the order of records, and
how Arrow's batches become messages. It refuses sessions and executors that lack something before
anything is started, and decides nothing about transactions.
"""
