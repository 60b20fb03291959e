"""Exactly-once sinks for any PySpark pipeline: Structured Streaming and batch.

Owns the batches of a sink: which one is accepted, its stage, its shards and its completion. The
attempts of a shard take it from each other as those of a backfill take a task. The rows are the
user's; no topology is involved.

Public: the names in `__all__`; the modules are internal.
"""

from eosframework.spark.sink_api import both, kafka_sink, table_sink
from eosframework.spark.sink_metrics import SinkProgress

__all__ = ["SinkProgress", "both", "kafka_sink", "table_sink"]
