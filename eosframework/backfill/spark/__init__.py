"""Spark's side of a backfill: sessions with the Kafka connector, and rows in task order.

Owns all DataFrames: closed ranges of topics, pinned files, staging, the order of records, and the
conversion of Arrow batches to messages. It refuses unsuitable sessions and executors before a job
starts, and decides nothing about transactions.
"""
