"""Batch operators: JSON values as Arrow's columns, the user's functions over them, and JSON again.

Owns what happens between the values of a slice of messages and what each message's value became.
Refuses to know what becomes of that: which record fails how, what is written where and when it is
committed is the cycle's. Beside backfill/ the only importer of pyarrow, which is an extra.
"""
