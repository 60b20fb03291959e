"""What a task of a backfill does on an executor: from rows in its order to transactions.

Owns attempts: who has a task, from where it goes on, what is committed together and what an outcome
means. It knows no Spark: rows come as an iterator, so that attempts are tested without it.
"""
