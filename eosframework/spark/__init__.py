"""Everything that runs on Spark: sinks of any pipeline, backfills of a topology, live workers.

Owns sessions (`session/`), jobs and their progress (`job/`), tasks on executors (`executor/`),
`backfill/`, `sinks/` and `workers/`. The only importer of pyspark.

Public: the names in `__all__`, and those of `backfill/`; the modules are internal.
"""

from eosframework.spark.sinks.sink_api import both, kafka_sink, table_sink
from eosframework.spark.sinks.sink_runner import SinkProgress

__all__ = ["SinkProgress", "both", "kafka_sink", "table_sink"]
