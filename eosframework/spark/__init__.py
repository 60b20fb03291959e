"""Exactly-once sinks for any PySpark pipeline: Structured Streaming and batch.

Owns the batches of a sink, of any kind: which one is accepted, its stage and its completion.
`kafka/` and `table/` own the columns and the shards of their kind; the attempts of a shard take it
from each other as those of a backfill take a task. The rows are the user's; no topology is
involved. `workers/` runs live workers on a cluster, and shares nothing with sinks.

Public: the names in `__all__`; the modules are internal.
"""

from eosframework.spark.sink_api import both, kafka_sink, table_sink
from eosframework.spark.sink_runner import SinkProgress

__all__ = ["SinkProgress", "both", "kafka_sink", "table_sink"]
