"""The task of a backfill on an executor: from ordered rows to transactions.

Owns attempts: ownership of a task, its resume position, the content of a commit and the handling of
outcomes. It has no dependency on Spark: rows come as an iterator, so attempts are tested without
it.
"""
