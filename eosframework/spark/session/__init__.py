"""Spark sessions with the Kafka connector, their executors, and rows in task order.

Refuses unsuitable sessions and executors before a job starts, and decides nothing about
transactions.
"""
