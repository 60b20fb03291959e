"""Exactly-once sinks for any PySpark pipeline: Structured Streaming and batch.

Owns the batches of a sink, of any kind: which one is accepted, its stage and its completion.
`kafka/` and `table/` own the columns and the shards of their kind; the attempts of a shard take it
from each other as those of a backfill take a task. The rows are the user's; no topology is
involved.
"""
