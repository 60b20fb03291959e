"""Attempts of a task that another engine may repeat or duplicate, such as Spark.

Owns the condition for taking a task from another attempt, and the ownership of its transactional id
with the progress committed under it. The work of the task and the place of its progress are the
user's: a backfill and a sink of Spark.

Internal: no module here is public.
"""
